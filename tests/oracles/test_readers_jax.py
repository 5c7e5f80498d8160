"""The JAX reader against JAX: parameters, and FLOPs calculated by hand."""

from __future__ import annotations

from typing import Any

import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("flax")
pytestmark = pytest.mark.filterwarnings("ignore")

from oracles import jax_programs  # noqa: E402
from raceline.models import count  # noqa: E402
from raceline.models.read import read_model  # noqa: E402


def language_flops(length: int) -> int:
    layer = 2 * length * (4 * 32 * 32 + 2 * 32 * 128) + 4 * length * length * 32
    return 3 * layer + 2 * length * 32 * 100


FLOPS = {
    "mlp": 2 * (10 * 20 + 20 * 5),
    "images": 2 * 16 * 16 * (27 * 16 + 4 * 9 * 16) + 2 * 16 * 10,
    "language": language_flops(jax_programs.TOKENS),
}


def parameters(name: str) -> int:
    made: Any = getattr(jax_programs, name)()
    tree = made[1] if name == "mlp" else jax.eval_shape(made[0].init, jax.random.key(0), *made[1:])["params"]
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


@pytest.mark.parametrize("name", FLOPS)
def test_a_program_has_the_parameters_and_flops_of_its_function(name: str) -> None:
    model = read_model(f"jax:oracles.jax_programs:{name}")
    assert count.parameters(model) == parameters(name)
    assert count.flops(model) == pytest.approx(FLOPS[name], rel=0.01)


def test_a_traced_language_model_grows_with_the_length() -> None:
    model = read_model("jax:oracles.jax_programs:language")
    assert count.flops(model, 1, 64) == pytest.approx(language_flops(64), rel=0.01)


@pytest.mark.parametrize(
    ("name", "parameters", "flops"),
    [("loop", 7 * 32 * 32, 6 * 2 * 2 * 32 * 32), ("upsampling", 9 * 8 * 16, 2 * 64 * 9 * 8 * 16),
     ("normalised", 16 * 32 + 32 + 2 * 32 + 32 * 4 + 4, 2 * (16 * 32 + 32 * 4))],
)  # fmt: skip
def test_other_programs_count_as_by_hand(name: str, parameters: int, flops: int) -> None:
    model = read_model(f"jax:oracles.jax_programs:{name}")
    assert (count.parameters(model), count.flops(model)) == (parameters, flops)


def test_attention_has_the_flops_that_xla_counts() -> None:
    model = read_model("jax:oracles.jax_programs:attention")
    function, *given = jax_programs.attention()
    xla = jax.jit(function).lower(*given).cost_analysis()["flops"]
    assert model.layers == 1
    assert count.flops(model, 2) == pytest.approx(xla, rel=0.01)
