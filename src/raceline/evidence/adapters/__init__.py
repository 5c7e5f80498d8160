"""Adapters: one module for each format of published table, each with `COLUMNS` and `adapt`.

`adapt` maps one record (column to text) to a `Row`. What a record leaves out is filled by rules, the same
for every record, that never look at the measured value; the row lists them in `assumed`.
"""
