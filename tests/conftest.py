"""Hypothesis without its deadline of 200 ms: a busy machine is no defect, and limits in time are tests of
their own."""

from hypothesis import settings

settings.register_profile("raceline", deadline=None)
settings.load_profile("raceline")
