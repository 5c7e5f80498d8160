"""ONNX graphs are read without the onnx package; damaged ones are refused."""

from __future__ import annotations

import contextlib
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count
from raceline.models.read import read_model
from raceline.models.readers.onnx_wire import parse
from raceline.present.errors import InputError
from readers.onnx_bytes import field, graph, node, port, weight


def read(path: Path, data: bytes) -> Any:
    file = path / "m.onnx"
    file.write_bytes(data)
    return read_model(str(file))


TEXT = graph(
    port("ids", 7, "batch", "length"), weight("table", 50, 8), weight("w", 8, 4), weight("b", 4),
    node("Gather", "table ids", "x", "/embed/Gather"), node("MatMul", "x w", "y", "/layers.0/fc/MatMul"),
    node("Add", "y b", "z", "/layers.0/fc/Add"),
)  # fmt: skip


def test_a_text_graph_grows_with_its_symbolic_length(tmp_path: Path) -> None:
    model = read(tmp_path, TEXT)
    assert count.parameters(model) == 50 * 8 + 8 * 4 + 4
    assert count.flops(model, 1, 10) == 2 * 10 * 8 * 4
    assert model.unit == "token"


def test_an_image_graph_takes_the_image_size(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    convolution = node("Conv", "image w b", "y", group=1)
    path.write_bytes(
        graph(port("image", 1, "n", 3, "h", "w"), weight("w", 8, 3, 1, 1), weight("b", 8), convolution)
    )
    model = read_model(str(path), image_size=32)
    assert (count.parameters(model), count.flops(model)) == (32, 2 * 32 * 32 * 3 * 8)


def test_running_statistics_are_no_parameters(tmp_path: Path) -> None:
    names = ("scale", "shift", "mean", "var")
    norm = node("BatchNormalization", "x scale shift mean var", "y")
    model = read(tmp_path, graph(port("x", 1, 1, 4, 8, 8), *(weight(name, 4) for name in names), norm))
    assert count.parameters(model) == 8


@pytest.mark.parametrize(
    "data",
    [b"", b"\0", b"\x3a\xff\xff\xff\xff\x07", field(7, b"\x0a\xff"), b"\xff" * 100, field(1, 8), TEXT[:-3],
     graph(port("x", 1, 1, 4), node("MatMul", "x missing", "y")), graph(weight("w", 2**40, 2**40)),
     graph(port("x", 1, 1, 4), weight("w", 2**63), node("MatMul", "x w", "y"))],
)  # fmt: skip
def test_a_damaged_file_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InputError):
        read(tmp_path, data)


def test_endless_fields_end_in_time() -> None:
    started = time.process_time()
    with pytest.raises(InputError):
        parse(memoryview(field(1, 8) * 3_000_000), "x")
    assert time.process_time() - started < 1.5


def test_values_that_shapes_need_are_held_within_bounds(tmp_path: Path) -> None:
    size = field(5, field(1, 1) + field(2, 7) + field(7, 65_536) + field(8, "size"))
    sums = (node("Add", f"c{at} c{at}", f"c{at + 1}") for at in range(2_000))
    path = tmp_path / "m.onnx"
    path.write_bytes(graph(port("x", 1, 1, 4), size, node("ConstantOfShape", "size", "c0"), *sums))
    tracemalloc.start()
    read_model(str(path))
    held_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert held_bytes < 100e6


def test_a_graph_of_too_many_nodes_is_refused() -> None:
    with pytest.raises(InputError):
        parse(memoryview(graph(*[node("Relu", "x", "x")] * 15_001)), "x")


@given(st.binary(max_size=60), st.integers(0, len(TEXT)))
def test_any_bytes_are_read_or_refused(tmp_path_factory: Any, data: bytes, at: int) -> None:
    path = tmp_path_factory.mktemp("onnx")
    for content in (data, TEXT[:at] + data + TEXT[at + len(data) :]):
        with contextlib.suppress(InputError):
            read(path, content)
