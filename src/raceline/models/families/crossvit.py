"""CrossViT (arXiv:2103.14899): two branches of different patches that exchange their class tokens.

Fields, one value for each branch: `hidden_sizes`, `num_attention_heads`, `patch_sizes`, `depths` (layers in each
of `num_stages` stages) and `mlp_ratios`. `second_scale`: the side that the second branch sees over that of the
first; `exchanges`: how often a stage exchanges tokens.
"""

from __future__ import annotations

from typing import NamedTuple

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.drawn_layers import (
    attend,
    feed_forward,
    first_token,
    pre_norm_layer,
    with_positions,
    with_tokens,
)
from raceline.models.families.images import (
    classes_of,
    image_model,
    image_size_of,
    patches_of,
    pixels,
    same_length,
    whole_numbers,
)
from raceline.models.families.layers import tensor
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Model

_BRANCHES = 2


class _Branch(NamedTuple):
    """Sizes of one branch. `side`: of the image that it sees; `own`: of that its table was made for."""

    width: int
    heads: int
    patch: int
    depth: int
    ratio: int
    side: int
    own: int


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier whose logits are the mean over two branches."""
    side = image_size_of(fields, image_size, 240)
    branches, drawing = _branches(fields, side), Drawing()
    stages = fields.integer("num_stages", default=3, maximum=1000)
    exchanges = fields.integer("exchanges", default=1, maximum=1000)
    channels = fields.integer("num_channels", default=3, maximum=64)
    xs = [_draw_patches(drawing, f"branch{index}", branch, channels) for index, branch in enumerate(branches)]
    for stage in range(stages):
        for index, branch in enumerate(branches):
            xs[index] = _draw_layers(drawing, xs[index], f"stage{stage}.branch{index}", branch)
        xs = [
            _draw_exchange(drawing, xs, index, f"stage{stage}.exchange{index}", branches, exchanges)
            for index in range(_BRANCHES)
        ]
    classes = classes_of(fields)
    drawing.block(
        "branch0.output",
        xs[0],
        lambda given: drawing.linear(
            first_token(drawing.layer_norm(given)), classes, name="classifier", quantisable=False
        ),
        role="output",
    )
    drawing.block(
        "output",
        xs[1],
        lambda given: drawing.classify(first_token(drawing.layer_norm(given)), classes),
        role="output",
    )
    layers = stages * sum(branch.depth for branch in branches)
    return image_model(fields, "crossvit", drawing.blocks, side, hidden=branches[1].width, layers=layers)


def _branches(fields: Fields, side: int) -> list[_Branch]:
    lists = {
        "hidden_sizes": whole_numbers(fields, "hidden_sizes", [128, 256], 65_536),
        "num_attention_heads": whole_numbers(fields, "num_attention_heads", [4, 4], 4096),
        "patch_sizes": whole_numbers(fields, "patch_sizes", [12, 16], 1024),
        "depths": whole_numbers(fields, "depths", [1, 3], 10_000),
        "mlp_ratios": whole_numbers(fields, "mlp_ratios", [3, 3], 1024),
        "branches": [0] * _BRANCHES,
    }
    same_length(**lists)
    del lists["branches"]
    seen = fields.number("second_scale", default=224 / 240, minimum=0.01, maximum=1)
    own = image_size_of(fields, None, 240)
    sides, owns = (side, max(1, round(side * seen))), (own, max(1, round(own * seen)))
    return [_Branch(*values) for values in zip(*lists.values(), sides, owns, strict=True)]


def _draw_patches(drawing: Drawing, name: str, branch: _Branch, channels: int) -> Feature:
    own = patches_of(branch.own, branch.patch)

    def make(given: Feature) -> Feature:
        y = drawing.conv(given, branch.width, branch.patch, branch.patch, padding=0, bias=True)
        return with_positions(drawing, with_tokens(drawing, y), own**2 + 1)

    return drawing.block(f"{name}.patches", pixels(branch.side, channels), make, role="input")


def _draw_layers(drawing: Drawing, x: Feature, name: str, branch: _Branch) -> Feature:
    def make(given: Feature) -> Feature:
        return pre_norm_layer(
            drawing,
            given,
            lambda normed: attend(drawing, normed, branch.heads),
            lambda normed: feed_forward(drawing, normed, branch.width * branch.ratio),
        )

    return drawing.block(name, x, make, repeat=branch.depth)


def _draw_exchange(
    drawing: Drawing, xs: list[Feature], index: int, name: str, branches: list[_Branch], exchanges: int
) -> Feature:
    """The class token of one branch, made as wide as the other's positions, looks at those and comes back."""
    other = branches[1 - index]

    def make(given: Feature) -> Feature:
        drawing.part(tensor("token", branches[index].width, SAMPLE))
        token = _projected(drawing, Feature("token", branches[index].width, (1,)), other.width)
        for turn in range(exchanges):
            both = drawing.layer_norm(drawing.concat([given]))
            query = first_token(both)
            looked = attend(drawing, query, other.heads, memory=both, prefix=f"exchange{turn}")
            token = drawing.add(looked, token)
        back = _projected(drawing, token, branches[index].width)
        return with_tokens(drawing, back._replace(size=(xs[index].size[0] - 1,)), learned=False)

    return drawing.block(name, xs[1 - index], make)


def _projected(drawing: Drawing, token: Feature, width: int) -> Feature:
    return drawing.linear(drawing.act(drawing.layer_norm(token), "gelu"), width, name="projection")
