"""Headers of .gguf files become models; damaged ones are refused."""

from __future__ import annotations

import contextlib
import struct
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count
from raceline.models.read import read_model
from raceline.models.readers import gguf
from raceline.present.errors import InputError
from readers.fixtures import elements, gguf_bytes

METADATA = {
    "general.architecture": "llama", "general.file_type": 15, "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 160, "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2,
    "llama.context_length": 512, "tokenizer.ggml.tokens": ["a"] * 100,
}  # fmt: skip


def shapes() -> dict[str, list[int]]:
    made = {"token_embd.weight": [100, 64], "output.weight": [100, 64], "output_norm.weight": [64]}
    for layer in ("blk.0.", "blk.1."):
        made |= {f"{layer}attn_{name}.weight": [64, 64] for name in ("q", "output")}
        made |= {f"{layer}attn_{name}.weight": [32, 64] for name in "kv"}
        made |= {f"{layer}ffn_{name}.weight": [160, 64] for name in ("gate", "up")}
        made |= {f"{layer}ffn_down.weight": [64, 160]}
        made |= {f"{layer}{name}_norm.weight": [64] for name in ("attn", "ffn")}
    return made


def read(tmp_path: Path, data: bytes) -> object:
    path = tmp_path / "tiny.gguf"
    path.write_bytes(data)
    return read_model(str(path))


def test_metadata_give_the_family(tmp_path: Path) -> None:
    model = read(tmp_path, gguf_bytes(METADATA, shapes(), kind=12))
    assert (model.family, model.layers, model.weight_format) == ("decoder", 2, "q4_k_m")
    assert count.parameters(model) == elements(shapes())


def test_an_unknown_architecture_still_counts_every_parameter(tmp_path: Path) -> None:
    model = read(tmp_path, gguf_bytes({"general.architecture": "brandnew"}, shapes()))
    assert count.parameters(model) == elements(shapes())
    assert model.weight_format == "q8_0"


def test_plain_weights_have_no_weight_format(tmp_path: Path) -> None:
    model = read(tmp_path, gguf_bytes({"general.architecture": "brandnew"}, shapes(), kind=30))
    assert (model.precision, model.weight_format) == ("bf16", None)


def test_the_bits_of_all_tensors_choose_the_format_that_no_word_names(tmp_path: Path) -> None:
    # Q3_K_S, which estimates don't know, with a table of 6 bits: (6400 x 6.5625 + 19200 x 3.4375) / 25600
    metadata = {"general.architecture": "brandnew", "general.file_type": 11}
    mixed = {"token_embd.weight": [100, 64], "a.weight": [300, 64]}
    data = bytearray(gguf_bytes(metadata, mixed, kind=11))
    data[-12 - len("a.weight") - 28 - 12 : -12 - len("a.weight") - 28 - 8] = struct.pack("<I", 14)
    header = gguf.parse(bytes(data), "x")
    assert gguf.bits_per_weight(header) == pytest.approx(4.21875)
    model = read(tmp_path, bytes(data))
    assert (model.weight_format, "models.format_nearest" in model.notes) == ("mxfp4", True)


def write_parts(folder: Path, parts: int) -> list[Path]:
    """The model in parts, as llama.cpp splits one: the metadata stand in the first."""
    names = list(shapes())
    paths = []
    for part in range(parts):
        held = {name: shapes()[name] for name in names[part::parts]}
        path = folder / f"tiny-{part + 1:05}-of-{parts:05}.gguf"
        path.write_bytes(gguf_bytes(METADATA if part == 0 else {"split.no": part}, held, kind=12))
        paths.append(path)
    return paths


@pytest.mark.parametrize("part", [0, 2])
def test_parts_of_a_split_file_are_one_model(tmp_path: Path, part: int) -> None:
    model = read_model(str(write_parts(tmp_path, 3)[part]))
    assert (model.family, count.parameters(model), model.notes) == ("decoder", elements(shapes()), ())


def test_the_first_part_describes_a_known_family(tmp_path: Path) -> None:
    first, second = write_parts(tmp_path, 2)
    second.unlink()
    assert "models.shards_missing" in read_model(str(first)).notes
    first.rename(second)
    with pytest.raises(InputError, match="part_missing"):
        read_model(str(second))


def test_every_truncation_is_refused() -> None:
    data = gguf_bytes(METADATA, {"token_embd.weight": [100, 64]})
    for end in range(0, len(data), 7):
        with pytest.raises(InputError):
            gguf.parse(data[:end], "x")


@pytest.mark.parametrize(
    "tail",
    [struct.pack("<IQQ", 3, 2**40, 0), struct.pack("<IQQ", 3, 0, 2**40), struct.pack("<IQQ", 9, 1, 0),
     struct.pack("<IQQQ", 3, 1, 1, 2**62), struct.pack("<IQQ", 3, 0, 0),
     struct.pack("<IQQQ1sIIQ", 3, 1, 1, 1, b"k", 9, 8, 2**60),
     struct.pack("<IQQQ1s", 3, 1, 1, 1, b"k") + struct.pack("<IIQ", 9, 9, 1) * 300,
     struct.pack("<IQQQ1sII", 3, 1, 1, 1, b"k", 99, 0)],
)  # fmt: skip
def test_hostile_headers_are_refused_at_once(tail: bytes) -> None:
    started = time.process_time()
    with pytest.raises(InputError):
        gguf.parse(b"GGUF" + tail + b"\0" * 4096, "x")
    assert time.process_time() - started < 1.0


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    with contextlib.suppress(InputError):
        gguf.parse(b"GGUF\3\0\0\0" + data, "x")


SOUND = gguf_bytes(METADATA, shapes(), kind=12)


@given(st.lists(st.tuples(st.integers(4, len(SOUND) - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_a_sound_header_with_wrong_bytes_is_read_or_refused(changes: list[tuple[int, int]]) -> None:
    data = bytearray(SOUND)
    for at, byte in changes:
        data[at] = byte
    with contextlib.suppress(InputError):
        header = gguf.parse(bytes(data), "x")
        gguf.weight_format(header)
        gguf.config_of(header)
