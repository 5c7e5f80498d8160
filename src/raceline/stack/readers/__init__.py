"""Readers of texts that people paste; `read_text` takes any of them, mixed and partial."""
