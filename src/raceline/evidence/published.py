"""The published tables: read from what ships with this version, or from a user's own files."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from raceline.evidence.rows import Row
from raceline.present.documents import load_yaml
from raceline.present.errors import InputError

# Most specific first: a table belongs to the first format whose columns it has.
FORMATS = ("megatron_ci", "serving", "training_vision", "inference_vision", "training", "inference")
LARGEST_FILE_BYTES = 64 * 1024 * 1024


def tables() -> tuple[str, ...]:
    """The names of the tables that ship."""
    return (*FORMATS, "fit")


@cache
def rows(table: str) -> tuple[Row, ...]:
    """All rows of a table that ships."""
    return tuple(_adapted(table, _records(_text(table), table)))


def ids() -> frozenset[tuple[str, str]]:
    """Table and id of every row that ships."""
    return frozenset(
        (table, str(record["id"])) for table in tables() for record in _records(_text(table), table)
    )


def _text(table: str) -> str:
    suffix = "yaml" if table == "fit" else "csv"
    packed = files("raceline.evidence").joinpath(f"data/{table}.{suffix}.gz").read_bytes()
    return gzip.decompress(packed).decode()


def read(path: str | Path) -> tuple[Row, ...]:
    """The rows of a file in one of the formats; raises InputError where its columns fit none or a row
    can't be read."""
    path = Path(path)
    try:
        size = path.stat().st_size
        if size > LARGEST_FILE_BYTES:
            raise InputError(
                "evidence.file_large", field="FILE", given=str(path), limit_mib=LARGEST_FILE_BYTES // 2**20
            )
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError("evidence.file_unread", field="FILE", given=str(path), reason=str(error)) from None
    table = "fit" if path.suffix in (".yaml", ".yml") else _format_of(text, path)
    return tuple(_checked(table, _records(text, table), path))


def _checked(table: str, records: Iterable[Mapping[str, Any]], path: Path) -> Iterator[Row]:
    """Rows of a file that nobody has proofread: what an adapter stumbles over names the row."""
    adapt, number = _adapter(table).adapt, 0
    try:
        for number, record in enumerate(records, 1):
            row = adapt(_named(record, path, number))
            for value in row.measured:
                if not (math.isfinite(value.value) and (value.value > 0 or value.metric == "fits")):
                    raise _bad_row(path, number, f"{value.metric}={value.value:g}")
            yield row
    except (csv.Error, KeyError, ValueError, TypeError, AttributeError, ArithmeticError) as error:
        raise _bad_row(path, number, f"{type(error).__name__}: {error}") from None


def _named(record: Mapping[str, Any], path: Path, number: int) -> Mapping[str, Any]:
    """A record with an id and a source, which a user's own rows may lack."""
    own = {"id": f"{path.stem}-{number}", "source": path.name, "source_url": ""}
    return {**own, **{name: value for name, value in record.items() if value or name not in own}}


def _bad_row(path: Path, number: int, reason: str) -> InputError:
    return InputError("evidence.row_unread", field="FILE", given=str(path), row=number, reason=reason)


def _format_of(text: str, path: Path) -> str:
    try:
        header = set(next(csv.reader(io.StringIO(text)), []))
    except csv.Error as error:
        raise _bad_row(path, 0, str(error)) from None
    own = {"id", "source", "source_url"}
    lacking = {name: _adapter(name).COLUMNS - header - own for name in FORMATS}
    nearest = min(FORMATS, key=lambda name: len(lacking[name]))
    if not lacking[nearest]:
        return nearest
    raise InputError(
        "evidence.format_unknown", field="FILE", given=str(path), known=", ".join(FORMATS), nearest=nearest,
        columns=", ".join(sorted(lacking[nearest])),
    )  # fmt: skip


def _records(text: str, table: str) -> Iterable[Mapping[str, Any]]:
    if table == "fit":
        found = load_yaml(text.encode())
        return found if isinstance(found, list) else [found] if found is not None else []
    return csv.DictReader(io.StringIO(text))


def _adapter(table: str) -> Any:
    return importlib.import_module(f"raceline.evidence.adapters.{table}")


def _adapted(table: str, records: Iterable[Mapping[str, Any]]) -> Iterable[Row]:
    adapt = _adapter(table).adapt
    return _marked(adapt(record) for record in _completed(table, records))


def _marked(found: Iterable[Row]) -> Iterator[Row]:
    """The rows, with a caution at each that repeats an earlier one of its source under another id."""
    seen: set[tuple[str, bytes]] = set()
    for row in found:
        scenario = {name: value for name, value in (row.scenario or {}).items() if name != "id"}
        key = (row.source, msgspec.json.encode((scenario, row.measured), order="sorted"))
        is_repeat = row.scenario is not None and row.doubtful is None and key in seen
        seen.add(key)
        yield msgspec.structs.replace(row, doubtful="repeat") if is_repeat else row


def _completed(table: str, records: Iterable[Mapping[str, Any]]) -> Iterable[Mapping[str, Any]]:
    """Records with what other records of the table say of the same run, where its adapter knows how."""
    complete = getattr(_adapter(table), "completed", None)
    return complete(records) if complete else records
