"""Sequencer (arXiv:2205.01972): layers that mix positions by LSTMs over columns and rows of the image.

`hidden_sizes`, `depths`, `patch_sizes` and `state_sizes` (an LSTM's hidden size) describe the stages, all with a
feed-forward part of `mlp_ratio`. The steps of an LSTM follow one another: each is a small matmul of its own.
"""

from __future__ import annotations

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import (
    classes_of,
    image_model,
    image_size_of,
    pixels,
    same_length,
    whole_numbers,
)
from raceline.models.families.layers import Part
from raceline.models.fields import Fields
from raceline.models.graph import AnyOp, Elementwise, Extent, Matmul, Model, Tensor, fixed

DIRECTIONS, GATES = 2, 4
# Elements a position and unit of state in one step: reads of both products and the cell, writes of what backward
# needs (gates, cell) and of the new state.
STEP_READS, STEP_WRITES = 9.0, 6.0


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier of several stages."""
    side = image_size_of(fields, image_size, 224)
    widths = whole_numbers(fields, "hidden_sizes", [192, 384, 384, 384], 65_536)
    depths = whole_numbers(fields, "depths", [4, 3, 8, 3], 10_000)
    patches = whole_numbers(fields, "patch_sizes", [7, 2, 1, 1], 1024)
    states = whole_numbers(fields, "state_sizes", [48, 96, 96, 96], 65_536)
    same_length(hidden_sizes=widths, depths=depths, patch_sizes=patches, state_sizes=states)
    ratio = fields.number("mlp_ratio", default=3.0, minimum=0.01, maximum=1024)
    drawing = Drawing()
    x = pixels(side, fields.integer("num_channels", default=3, maximum=64))
    for index, (width, depth, patch, state) in enumerate(zip(widths, depths, patches, states, strict=True)):
        x = drawing.block(
            f"patches{index}",
            x,
            lambda given, wide=width, step=patch: drawing.conv(  # type: ignore[misc]
                given, wide, step, step, padding=0, bias=True
            ),
            role="body" if index else "input",
        )
        x = drawing.block(
            f"stage{index}",
            x,
            lambda given, hidden=state: _layer(drawing, given, hidden, ratio),  # type: ignore[misc]
            repeat=depth,
        )
    classes = classes_of(fields)
    drawing.block(
        "output",
        x,
        lambda given: drawing.classify(drawing.global_pool(drawing.layer_norm(given)), classes),
        role="output",
    )
    return image_model(fields, "sequencer", drawing.blocks, side, hidden=x.channels, layers=sum(depths))


def _layer(drawing: Drawing, given: Feature, hidden: int, ratio: float) -> Feature:
    normed = drawing.layer_norm(given)
    columns = _recurrent(drawing, drawing.shuffle(drawing.shuffle(normed)), hidden, axis=0)
    rows = _recurrent(drawing, drawing.shuffle(normed), hidden, axis=1)
    mixed = drawing.add(drawing.linear(drawing.concat([columns, rows]), given.channels), given)
    inner = drawing.linear(drawing.layer_norm(mixed), max(1, int(given.channels * ratio)))
    return drawing.add(drawing.linear(drawing.act(inner, "gelu"), given.channels), mixed)


def _recurrent(drawing: Drawing, given: Feature, hidden: int, axis: int) -> Feature:
    """An LSTM in both directions along an axis: the input's products at once, the state's step by step."""
    steps, rows = given.size[axis], given.rows
    at_once = fixed(rows.positions() / steps)
    units = DIRECTIONS * hidden
    name = f"{given.name}_states"
    drawing.part(
        Part(
            (
                Matmul(
                    name="weight_ih", rows=rows, k=given.channels, n=GATES * units, bias=True,
                    keeps_for_weight=(given.name,),
                ),
                *_steps(hidden, steps, at_once, name),
            ),
            (Tensor(name, 6.0 * units, rows),),
        )
    )  # fmt: skip
    return drawing.shuffle(given._replace(channels=units))


def _steps(hidden: int, steps: int, at_once: Extent, states: str) -> tuple[AnyOp, ...]:
    """Each direction has a matrix of its own, which all of its steps share."""
    first = Matmul(
        name="weight_hh", rows=at_once, k=hidden, n=GATES * hidden, bias=True, count=DIRECTIONS,
        keeps_for_weight=(states,),
    )  # fmt: skip
    later = Matmul(
        name="weight_hh_next", rows=at_once, k=hidden, n=GATES * hidden, bias=True, tied=True,
        count=max(1, DIRECTIONS * (steps - 1)),
    )  # fmt: skip
    gates = Elementwise(
        name="gates", rows=at_once, reads=STEP_READS * hidden, writes=STEP_WRITES * hidden,
        count=DIRECTIONS * steps, keeps=(states,),
    )  # fmt: skip
    return first, later, gates
