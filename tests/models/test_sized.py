"""A model by its sizes has the sizes that it was given."""

import pytest

from raceline import api
from raceline.models import count
from raceline.models.families.sized import Sizes, build
from raceline.models.graph import Convolution, Matmul, Model
from raceline.models.readers import sizes
from raceline.present.errors import InputError

# parameters (M), multiply-adds (G), activations (M) at 224 as timm's results print them
RESNET50 = Sizes(parameters_m=25.56, gmacs=4.11, mactivations_m=11.11)
VIT_BASE = Sizes(parameters_m=86.57, gmacs=17.58, mactivations_m=23.9, kind="transformer")


def macs(model: Model) -> float:
    return sum(
        block.repeat * op.k * op.n * op.rows.fixed
        for block in model.blocks
        for op in block.ops
        if isinstance(op, (Matmul, Convolution))
    )


@pytest.mark.parametrize("given", [RESNET50, VIT_BASE])
def test_parameters_and_macs_are_kept(given: Sizes) -> None:
    model = build(given)
    assert count.parameters(model) == pytest.approx(given.parameters_m * 1e6, rel=0.05)
    assert macs(model) == pytest.approx(given.gmacs * 1e9, rel=0.12)


def test_activations_are_kept() -> None:
    model = build(RESNET50)
    written = sum(
        block.repeat * op.n * op.rows.fixed
        for block in model.blocks
        for op in block.ops
        if isinstance(op, Convolution)
    )
    assert written == pytest.approx(11.11e6, rel=0.02)


def test_a_larger_image_takes_more_in_proportion() -> None:
    assert macs(build(RESNET50, 448)) == pytest.approx(4.0 * macs(build(RESNET50)), rel=0.01)


def test_the_reference_gives_the_model_back() -> None:
    assert api.read_model(sizes.reference(RESNET50)) == build(RESNET50)


@pytest.mark.parametrize(
    "text",
    ["sizes:{", "sizes:[1]", 'sizes:{"gmacs":4}', 'sizes:{"parameters_m":0,"gmacs":1,"mactivations_m":1}'],
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        api.read_model(text)
