"""The ONNX reader against files that torch.onnx writes and that onnx.helper makes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
pytestmark = pytest.mark.filterwarnings("ignore")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from oracles.reader_programs import PROGRAMS, parts  # noqa: E402
from raceline.models import count  # noqa: E402
from raceline.models.read import read_model  # noqa: E402


def exported(name: str, folder: Path) -> tuple[Any, Any, str]:
    """A module with random weights (equal ones would be written once), its inputs, and its file."""
    module, given = parts(name)
    for value in module.parameters():
        torch.nn.init.normal_(value)
    path = str(folder / f"{name}.onnx")
    symbols = {"dynamic_axes": {"ids": {0: "batch", 1: "length"}}} if name == "language" else {}
    torch.onnx.export(
        module.eval(), (given,), path, dynamo=False, do_constant_folding=False, input_names=["ids"],
        training=torch.onnx.TrainingMode.PRESERVE, **symbols,
    )  # fmt: skip
    return module, given, path


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_file_has_the_parameters_and_flops_of_its_module(name: str, tmp_path: Path) -> None:
    module, given, path = exported(name, tmp_path)
    model = read_model(path)
    assert count.parameters(model) == sum(value.numel() for value in module.parameters())
    module, given = module.to("meta"), given.to("meta")
    if name == "language":
        given = torch.zeros(1, 64, dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        module(given)
    assert count.flops(model, 1, 64) == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_attention_is_found_among_the_products(tmp_path: Path) -> None:
    model = read_model(exported("language", tmp_path)[2])
    assert model.layers and [block.repeat for block in model.blocks if block.name == "layers"] == [3]


def test_external_data_is_not_opened(tmp_path: Path) -> None:
    path = exported("mlp", tmp_path)[2]
    whole = onnx.load(path)
    onnx.save(whole, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    (tmp_path / "weights.bin").unlink()
    assert count.parameters(read_model(path)) == 325
