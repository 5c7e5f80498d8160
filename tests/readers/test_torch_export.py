"""Exported programs are read from the JSON in their zip; damaged ones are refused."""

from __future__ import annotations

import contextlib
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count
from raceline.models.read import read_model
from raceline.models.readers.torch_export import Program
from raceline.present.errors import InputError


def tensor(*sizes: int, dtype: int = 7) -> dict[str, Any]:
    return {"dtype": dtype, "sizes": [{"as_int": size} for size in sizes]}


def argument(name: str, tensor_name: str) -> dict[str, Any]:
    return {"name": name, "arg": {"as_tensor": {"name": tensor_name}}, "kind": 1}


def linear_program() -> dict[str, Any]:
    """x [2, 10] times a weight [5, 10] with a bias."""
    node = {"target": "torch.ops.aten.linear.default",
            "inputs": [argument("input", "x"), argument("weight", "w"), argument("bias", "b")],
            "outputs": [{"as_tensor": {"name": "y"}}],
            "metadata": {"nn_module_stack": "L__self__,,A;L__self__fc,fc,B"}}  # fmt: skip
    values = {"x": tensor(2, 10), "w": tensor(5, 10), "b": tensor(5), "y": tensor(2, 5)}
    specs = [{"parameter": {"arg": {"name": name}, "parameter_name": f"fc.{name}"}} for name in "wb"]
    specs.append({"user_input": {"arg": {"as_tensor": {"name": "x"}}}})
    graph = {"nodes": [node], "tensor_values": values}
    return {"graph_module": {"graph": graph, "signature": {"input_specs": specs}}}


def archive(path: Path, data: bytes, member: str = "m/models/model.json") -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr(member, data)
    return path


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_model(str(path))
    return caught.value.message.id


def test_a_linear_program_is_read(tmp_path: Path) -> None:
    model = read_model(str(archive(tmp_path / "m.pt2", json.dumps(linear_program()).encode())))
    assert count.parameters(model) == 55
    assert count.flops(model) == 2 * 10 * 5
    assert model.blocks[0].name == "fc"


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    assert refused(archive(tmp_path / "m.pt2", b" " * 40_000_000)) == "present.too_large"


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.pt2"
    good = archive(path, b"{}").read_bytes()
    for data in (b"", b"PK\5\6", good[:-10], good[:30], b"\0" * 1000):
        path.write_bytes(data)
        assert refused(path) == "models.archive_damaged"


def test_an_archive_without_a_graph_is_refused(tmp_path: Path) -> None:
    assert refused(archive(tmp_path / "m.pt2", b"", "m/data.pkl")) == "models.pt2_without_graph"


@pytest.mark.parametrize("data", [b"[]", b"{}", b'{"graph_module": 3}', b"[" * 1000])
def test_a_wrong_graph_is_refused(tmp_path: Path, data: bytes) -> None:
    assert refused(archive(tmp_path / "m.pt2", data)).split(".")[1] in ("pt2_wrong", "too_deep")


def test_a_program_of_too_many_calls_is_refused(tmp_path: Path) -> None:
    data = linear_program()
    data["graph_module"]["graph"]["nodes"] *= 10_001
    assert refused(archive(tmp_path / "m.pt2", json.dumps(data).encode())) == "models.program_too_long"


KEYS = st.sampled_from(["x", "sizes", "target"])
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner),
)


@given(st.sampled_from(["nodes", "tensor_values"]), VALUES)
def test_any_graph_is_read_or_refused(tmp_path_factory: Any, key: str, value: Any) -> None:
    data = linear_program()
    data["graph_module"]["graph"][key] = value
    path = archive(tmp_path_factory.mktemp("pt2") / "m.pt2", json.dumps(data).encode())
    with contextlib.suppress(InputError):
        read_model(str(path))


def test_symbols_are_calculated_not_run() -> None:
    program = Program(linear_program())
    program.symbols = {"s0": 7}
    size = {"as_expr": {"expr_str": "Mul(Integer(2), Symbol('s0'))", "hint": {"as_int": 1}}}
    assert program._size(size) == 14
    assert program._size({"as_expr": {"expr_str": "__import__('os')", "hint": {"as_int": 3}}}) == 3
