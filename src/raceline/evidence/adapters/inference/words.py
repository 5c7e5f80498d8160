"""The words of the published inference tables, and what each means in a scenario."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from raceline.present.documents import load_yaml

Format = tuple[str | None, str | None, str | None]


class ModelWord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The bundled model behind a word, with the size or length that the word implies."""

    model: str
    size: int | None = None
    seq_len: int | None = None


class Usual(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a source leaves out; `seq_lens` by model. `workers`: cores of a chip that each run a copy of the
    model; `steps`: denoising steps of one image; `guidance`: images that are computed for one asked for."""

    precision: str | None = None
    batch: int | None = None
    seq_len: int | None = None
    input_len: int | None = None
    output_len: int | None = None
    workers: int = 1
    steps: int | None = None
    guidance: int = 1
    seq_lens: dict[str, int] = msgspec.field(default_factory=dict)


class Words(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The tables of ``data/inference_words.yaml``."""

    runtimes: dict[str, str]
    frameworks: tuple[tuple[str, str], ...]
    precisions: dict[str, Format]
    models: dict[str, ModelWord]
    processors: dict[str, str]
    lengths: dict[str, dict[str, tuple[int, int]]]
    sharegpt: tuple[int, int]
    sources: dict[str, Usual]
    free_batches: dict[str, int]
    most_sequences: dict[str, int]
    squad_tokens: int
    says: dict[str, tuple[str, ...]]


@cache
def words() -> Words:
    """The tables, read once."""
    raw: Any = load_yaml(files("raceline.evidence").joinpath("data/inference_words.yaml").read_bytes())
    return msgspec.convert(raw, Words)


def says(text: str, meaning: str) -> bool:
    """Whether a note or a unit has one of the words for `meaning`."""
    lower = text.lower()
    return any(word.lower() in lower for word in words().says[meaning])


def runtime_of(engine: str, framework: str) -> str:
    """The runtime that an engine's or a stack's name means; "" where it isn't known what ran."""
    name, stack = engine.lower(), framework.lower()
    if name in words().runtimes:
        return words().runtimes[name]
    if name and name not in ("triton", "mlperf-server"):
        return name.split()[0]
    return next((runtime for part, runtime in words().frameworks if part in stack), name)
