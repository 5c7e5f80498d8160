"""The PyTorch readers on models of transformers: parameters and FLOPs as PyTorch counts them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = pytest.mark.filterwarnings("ignore")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from oracles.transformers_programs import PROGRAMS, TOKENS, ids  # noqa: E402
from raceline.models import count  # noqa: E402
from raceline.models.read import read_model  # noqa: E402


def parts(name: str) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The module, its inputs, and those given by name, without storage."""
    with torch.device("meta"):
        module, first, *named = PROGRAMS[name]()
    return module, () if first is None else (first,), named[0] if named else {}


def flops(name: str) -> int:
    module, inputs, named = parts(name)
    if name == "llama":
        module.config.use_cache = True
    with FlopCounterMode(display=False) as counter:
        module(*inputs, **named)
    return counter.get_total_flops()


# PyTorch's counter has no formula for the products of experts, and its figure leaves them out
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "mixtral"])
def test_a_model_has_the_parameters_and_flops_that_pytorch_counts(name: str) -> None:
    model = read_model(f"oracles.transformers_programs:{name}")
    module, inputs, named = parts(name)
    batch = next(iter((*inputs, *named.values()))).shape[0]
    assert count.parameters(model) == sum(value.numel() for value in module.parameters())
    assert count.flops(model, batch) == pytest.approx(flops(name), rel=1e-6)


def test_experts_count_once_held_and_twice_visited() -> None:
    model = read_model("oracles.transformers_programs:mixtral")
    module = parts("mixtral")[0]
    total = sum(value.numel() for value in module.parameters())
    experts = sum(value.numel() for name, value in module.named_parameters() if ".experts." in name)
    assert count.parameters(model) == total
    assert count.parameters_active(model) == total - experts // 2
    assert count.flops(model, 1, TOKENS) > 2 * TOKENS * (experts // 2)


def test_an_exported_llama_has_the_parameters_and_flops_that_pytorch_counts(tmp_path: Path) -> None:
    module = PROGRAMS["llama"]()[0].eval()
    torch.export.save(torch.export.export(module, (ids(),), strict=False), tmp_path / "m.pt2")
    model = read_model(str(tmp_path / "m.pt2"))
    assert count.parameters(model) == sum(value.numel() for value in module.parameters())
    assert count.flops(model) == pytest.approx(flops("llama"), rel=0.01)
