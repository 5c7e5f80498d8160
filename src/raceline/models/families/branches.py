"""Networks whose blocks are written out as data: Inception, SqueezeNet, Xception, Darknet, MobileNet v1.

`blocks` is a list of ``[repeat, steps]``. A step is a list that starts with its kind:
conv and plain (channels, kernel, stride, padding; plain has no activation), depth and depth_bare (kernel,
stride; bare has neither norm nor activation), act, max and mean (kernel, stride, padding, "ceil" to round
up), split (branches, joined) and add (branches, summed; an empty branch is the input itself). A kernel is a
number or a pair.
`has_norm` false: convolutions with biases instead. `head` conv: the last convolution classifies.
"""

from __future__ import annotations

from typing import Any

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import classes_of, image_model, image_size_of, pixels
from raceline.models.families.transformer import loss
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Model
from raceline.present.errors import InputError

_DEEPEST = 4
_MOST_STEPS = 64


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A classifier from its steps."""
    side = image_size_of(fields, image_size, 224)
    network = _Network(fields)
    drawing = network.drawing
    x = pixels(side, fields.integer("num_channels", default=3, maximum=64))
    for index, entry in enumerate(fields.items("blocks", longest=256)):
        repeat, steps = _entry(entry)
        x = drawing.block(
            f"block{index}",
            x,
            lambda given, chain=steps: network.run(given, chain, 0),  # type: ignore[misc]
            repeat=repeat,
            role="body" if index else "input",
        )
    classes, is_conv = classes_of(fields), fields.text("head", default="linear") == "conv"

    def output(given: Feature) -> Feature:
        if not is_conv:
            return drawing.classify(drawing.global_pool(given), classes)
        y = drawing.global_pool(drawing.act(drawing.conv(given, classes, bias=True)))
        drawing.part(loss(classes, SAMPLE))
        return y

    drawing.block("output", x, output, role="output")
    return image_model(fields, "branches", drawing.blocks, side, hidden=x.channels)


def _entry(entry: Any) -> tuple[int, list[Any]]:
    if isinstance(entry, list) and len(entry) == 2 and type(entry[0]) is int and 0 < entry[0] <= 1000:
        return entry[0], _steps(entry[1])
    raise _wrong(entry)


def _steps(steps: Any) -> list[Any]:
    if not isinstance(steps, list) or len(steps) > _MOST_STEPS:
        raise _wrong(steps)
    return steps


def _wrong(given: Any) -> InputError:
    return InputError("models.step_wrong", given=str(given)[:60])


def _number(value: Any, least: int = 1) -> int:
    if type(value) is not int or not least <= value <= 100_000:
        raise _wrong(value)
    return value


class _Network:
    def __init__(self, fields: Fields) -> None:
        self.drawing = Drawing()
        self.act: str = fields.text("hidden_act", default="relu")
        self.has_norm = fields.flag("has_norm", default=True)

    def run(self, given: Feature, steps: list[Any], depth: int) -> Feature:
        """Steps one after the other."""
        for step in steps:
            if not isinstance(step, list) or not step or not isinstance(step[0], str) or depth > _DEEPEST:
                raise _wrong(step)
            given = self._step(given, step[0], step[1:], depth)
        return given

    def _step(self, given: Feature, kind: str, values: list[Any], depth: int) -> Feature:
        if kind in ("split", "add"):
            return self._join(given, kind, values, depth)
        if kind == "act":
            return self.drawing.act(given, self.act)
        if kind in ("conv", "plain") and values:
            return self._conv(given, _number(values[0]), values[1:], kind == "conv")
        if kind in ("depth", "depth_bare"):
            return self._depthwise(given, values, kind == "depth")
        if kind in ("max", "mean") and len(values) >= 2:
            padding = _number(values[2], 0) if len(values) > 2 else None
            pooling: Any = kind
            return self.drawing.pool(
                given, _number(values[0]), _number(values[1]), padding=padding, kind=pooling,
                ceil="ceil" in values[3:],
            )  # fmt: skip
        raise _wrong([kind, *values])

    def _join(self, given: Feature, kind: str, branches: list[Any], depth: int) -> Feature:
        made = [self.run(given, _steps(branch), depth + 1) for branch in branches[:_MOST_STEPS]]
        if len(made) < 2:
            raise _wrong(branches)
        if kind == "split":
            return self.drawing.concat(made)
        total = made[0]
        for other in made[1:]:
            total = self.drawing.add(total, other)
        return total

    def _conv(self, given: Feature, channels: int, values: list[Any], has_act: bool) -> Feature:
        kernel = _kernel(values[0]) if values else 1
        stride = _number(values[1]) if len(values) > 1 else 1
        padding = _number(values[2], 0) if len(values) > 2 else None
        y = self.drawing.conv(given, channels, kernel, stride, padding=padding, bias=not self.has_norm)
        y = self.drawing.norm(y) if self.has_norm else y
        return self.drawing.act(y, self.act) if has_act else y

    def _depthwise(self, given: Feature, values: list[Any], has_rest: bool) -> Feature:
        kernel = _number(values[0]) if values else 3
        stride = _number(values[1]) if len(values) > 1 else 1
        y = self.drawing.conv(given, given.channels, kernel, stride, groups=given.channels)
        return self.drawing.act(self.drawing.norm(y), self.act) if has_rest else y


def _kernel(value: Any) -> int | tuple[int, ...]:
    if isinstance(value, list) and len(value) == 2:
        return tuple(_number(side) for side in value)
    return _number(value)
