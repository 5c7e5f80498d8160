"""Model families: functions from config fields to an op graph.

A family is a function ``build(fields: Fields, image_size: int | None) -> Model``, found by the
config's ``model_type`` (or ``architecture`` / ``_class_name``) in `registry`.
"""
