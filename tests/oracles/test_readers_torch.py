"""The PyTorch readers against PyTorch: parameters, FLOPs, and what autograd keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from oracles.reader_programs import PROGRAMS, parts  # noqa: E402
from raceline.models import count  # noqa: E402
from raceline.models.read import read_model  # noqa: E402
from raceline.present.errors import InputError  # noqa: E402


def flops(name: str, inputs: Any = None) -> int:
    with torch.device("meta"):
        module, given = parts(name)
    with FlopCounterMode(display=False) as counter:
        module(given.to("meta") if inputs is None else inputs)
    return counter.get_total_flops()


def saved_bytes(name: str) -> int:
    module, given = parts(name)
    own = {value.untyped_storage()._cdata for value in (*module.parameters(), *module.buffers())}
    found = {}

    def pack(tensor: Any) -> Any:
        if tensor.untyped_storage()._cdata not in own:
            found[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        module.train()(given)
    return sum(tensor.untyped_storage().nbytes() for tensor in found.values())


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_function_has_the_parameters_flops_and_kept_bytes_of_its_module(name: str) -> None:
    model = read_model(f"oracles.reader_programs:{name}")
    assert count.parameters(model) == sum(value.numel() for value in parts(name)[0].parameters())
    assert count.flops(model) == pytest.approx(flops(name), rel=0.01)
    assert count.saved_bytes(model, precision="fp32") == pytest.approx(saved_bytes(name), rel=0.05)


def test_a_traced_language_model_grows_with_the_length() -> None:
    model = read_model("oracles.reader_programs:language")
    ids = torch.zeros(1, 64, dtype=torch.int64, device="meta")
    assert count.flops(model, 1, 64) == pytest.approx(flops("language", ids), rel=0.01)


def test_equal_layers_are_one_block() -> None:
    model = read_model("oracles.reader_programs:language")
    assert [block.repeat for block in model.blocks if block.name == "layers"] == [3]


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_exported_program_has_the_parameters_and_flops_of_its_module(name: str, tmp_path: Path) -> None:
    module, given = parts(name)
    sizes = ({1: torch.export.Dim("length", min=2, max=512)},) if name == "language" else None
    torch.export.save(torch.export.export(module.eval(), (given,), dynamic_shapes=sizes), tmp_path / "m.pt2")
    model = read_model(str(tmp_path / "m.pt2"))
    assert count.parameters(model) == sum(value.numel() for value in module.parameters())
    assert count.flops(model) == pytest.approx(flops(name), rel=0.01)
    if name == "language":
        ids = torch.zeros(1, 64, dtype=torch.int64, device="meta")
        assert count.flops(model, 1, 64) == pytest.approx(flops(name, ids), rel=0.01)


def dropping() -> Any:
    """Its constructor and its forward pass look at values."""

    class Dropping(torch.nn.Linear):
        def forward(self, x: Any) -> Any:
            return super().forward(x) if bool((x == 0).all()) else x

    torch.linspace(0, 0.1, 4)[1].item()
    return Dropping(8, 4)


def test_a_program_that_looks_at_values_gets_some() -> None:
    model = read_model("oracles.test_readers_torch:dropping")
    assert (count.parameters(model), count.flops(model)) == (36, 64)


def failing() -> Any:
    """A program with an error of its own."""
    raise LookupError("no such layer")


def test_an_error_in_the_program_is_named() -> None:
    with pytest.raises(InputError) as caught:
        read_model("oracles.test_readers_torch:failing")
    assert "no such layer" in caught.value.message.params["reason"]


def test_inputs_that_nothing_tells_are_asked_for() -> None:
    with pytest.raises(InputError) as caught:
        read_model("torch.nn:Identity")
    assert caught.value.message.id == "models.inputs_unknown"
