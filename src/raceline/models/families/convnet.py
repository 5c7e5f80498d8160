"""Pieces of convolutional networks at one image size: convolution, norm, activation, pooling.

A `Drawing` collects blocks; each piece takes a `Feature` (an activation) and returns the next one. What is
kept for backward follows eager PyTorch: a convolution its input (for the weight), batch norm its input,
ReLU its output (so that a block's last ReLU costs nothing of its own: the next convolution keeps the same
tensor), other activations their input, max pooling its input and the 8-byte indices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Literal, NamedTuple

import msgspec

from raceline.models.families.layers import Part
from raceline.models.families.layers import norm as layer_norm
from raceline.models.families.transformer import loss
from raceline.models.graph import (
    SAMPLE,
    AnyOp,
    Block,
    Convolution,
    ElementType,
    Elementwise,
    Extent,
    Matmul,
    Norm,
    Tensor,
    fixed,
)
from raceline.present.errors import InputError

LARGEST_IMAGE = 16_384
Kernel = int | tuple[int, ...]
Make = Callable[["Feature"], "Feature"]

# Activations whose gradient needs their output; all others need their input.
_OUTPUT_KEPT = {"relu", "relu6", "leaky_relu", "sigmoid", "tanh", "elu"}


class Feature(NamedTuple):
    """An activation: its tensor, channels and spatial size. `kept`: whoever makes it keeps it too."""

    name: str
    channels: int
    size: tuple[int, ...]
    kept: bool = False

    @property
    def rows(self) -> Extent:
        """One position for each place in the image."""
        return fixed(prod(self.size))


def strided(size: int, kernel: int, stride: int, padding: int | None, dilation: int, ceil: bool) -> int:
    """Positions along one axis after a window moves over it. `padding` None: half the kernel; -1: as much
    as keeps ceil(size / stride) positions (TensorFlow's "same")."""
    if padding == -1:
        return -(-size // stride)
    reach = dilation * (kernel - 1) + 1
    free = size + 2 * (reach // 2 if padding is None else padding) - reach
    steps = -(-free // stride) if ceil else free // stride
    if steps < 0:
        raise InputError("models.image_too_small", given=size, kernel=reach)
    return steps + 1


def _each(kernel: Kernel, axes: int) -> tuple[int, ...]:
    return kernel if isinstance(kernel, tuple) else (kernel,) * axes


class Drawing:
    """Collects the blocks of one network. A block is drawn by a function from its input to its output."""

    def __init__(self, component: str = "", norm: Literal["batch", "group"] = "batch") -> None:
        self.blocks: list[Block] = []
        self._component, self._norm = component, norm
        self._ops: list[AnyOp] = []
        self._tensors: list[Tensor] = []
        self._block = ""
        self._given: tuple[str, ...] = ()

    def block(
        self,
        name: str,
        given: Feature,
        make: Make,
        *,
        repeat: int = 1,
        role: Literal["input", "body", "output"] = "body",
        trained: bool = True,
        owns_input: bool = True,
    ) -> Feature:
        """Draws one block, `repeat` times with parameters of its own. Its input belongs to it (unless an
        earlier block took the same feature); its output belongs to the block that takes it as input."""
        self._ops, self._tensors, self._block = [], [], name
        own = given._replace(name="input", kept=False) if owns_input else given
        if owns_input:
            self._tensor("input", given.channels, given.rows)
        self._given = ("input",) if given.kept and owns_input else ()
        made = make(own)
        is_kept = self._release(made)
        self.blocks.append(
            Block(
                name=name,
                ops=tuple(self._ops),
                tensors=tuple(self._tensors),
                repeat=repeat,
                role=role,
                boundary="input",
                component=self._component,
                trained=trained,
            )
        )
        return made._replace(name=f"{name}/out", kept=is_kept)

    def _release(self, made: Feature) -> bool:
        """Takes the block's output off what its own ops keep; the next block keeps it as its input."""
        is_kept = made.kept
        for index, op in enumerate(self._ops):
            if made.name in op.keeps or made.name in op.keeps_for_weight:
                is_kept = True
                self._ops[index] = msgspec.structs.replace(
                    op,
                    keeps=tuple(name for name in op.keeps if name != made.name),
                    keeps_for_weight=tuple(name for name in op.keeps_for_weight if name != made.name),
                )
        return is_kept and made.name != "input"

    def _tensor(self, name: str, width: float, rows: Extent, element: ElementType = "activation") -> None:
        self._tensors.append(Tensor(name, width, rows, element))

    def _made(self, channels: int, size: tuple[int, ...], kept: bool = False) -> Feature:
        feature = Feature(f"{self._block}/{len(self._ops)}", channels, size, kept)
        self._tensor(feature.name, channels, feature.rows)
        return feature

    def _op(self, op: AnyOp) -> None:
        if self._given:
            op = msgspec.structs.replace(op, keeps=(*op.keeps, *self._given))
            self._given = ()
        self._ops.append(op)

    def part(self, part: Part) -> None:
        """Ops and tensors of the shared builders, as they are."""
        for op in part.ops:
            self._op(op)
        self._tensors.extend(part.tensors)

    def conv(
        self,
        given: Feature,
        channels: int,
        kernel: Kernel = 1,
        stride: Kernel = 1,
        *,
        padding: Kernel | None = None,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = False,
        tied: bool = False,
        is_constant: bool = False,
        sampled_at: Feature | None = None,
        name: str = "conv",
    ) -> Feature:
        """A convolution; `groups` = channels is a depthwise one. `tied`: its weights stand in another one;
        `is_constant`: they are not learned at all. `sampled_at`: the offsets of a deformable one."""
        axes = len(given.size)
        kernels, strides = _each(kernel, axes), _each(stride, axes)
        paddings = (None,) * axes if padding is None else _each(padding, axes)
        size = tuple(
            strided(length, window, step, pad, dilation, False)
            for length, window, step, pad in zip(given.size, kernels, strides, paddings, strict=True)
        )
        taps = prod(kernels)
        op = Convolution(
            name=name,
            rows=fixed(prod(size)),
            k=given.channels // groups * taps,
            n=channels,
            groups=groups,
            bias=bias,
            input_elements=float(given.channels * min(taps, prod(strides))),
            keeps=() if sampled_at is None else (given.name, sampled_at.name),
            keeps_for_weight=() if is_constant else (given.name,),
            tied=tied or is_constant,
        )
        self._op(op)
        return self._made(channels, size)

    def upconv(
        self, given: Feature, channels: int, factor: int = 2, *, kernel: int | None = None, bias: bool = True
    ) -> Feature:
        """A transposed convolution of stride `factor`: every position adds to kernel^axes of the new ones
        (None: the kernel is the stride, so that none overlap)."""
        size = tuple(length * factor for length in given.size)
        self._op(
            Convolution(
                name="upconv",
                rows=given.rows,
                k=given.channels,
                n=channels * (kernel or factor) ** len(size),
                input_elements=float(given.channels),
                keeps_for_weight=(given.name,),
            )
        )
        if bias:
            self._op(Elementwise(name="upconv_bias", rows=fixed(0), reads=0, writes=0, parameters=channels))
        return self._made(channels, size)

    def norm(self, given: Feature, style: Literal["batch", "group"] = "batch", groups: int = 32) -> Feature:
        """Batch or group norm with weight and bias. Batch statistics are too small to count."""
        self._op(
            Norm(
                name=f"{style}_norm",
                rows=given.rows,
                style=style,
                width=given.channels,
                bias=True,
                keeps=(given.name, f"{given.name}_statistics"),
            )
        )
        if style == "group":
            self._tensor(f"{given.name}_statistics", 2.0 * groups, SAMPLE, "fp32")
        return self._made(given.channels, given.size)

    def normed(self, given: Feature, kind: str) -> Feature:
        """The norm that a config names: "group", "frozen" (batch norm as a fixed scale) or "none"; else
        batch norm."""
        if kind == "none":
            return given
        if kind == "frozen":
            return self.fixed_scale(given)
        return self.norm(given, "group" if kind == "group" else "batch")

    def fixed_scale(self, given: Feature) -> Feature:
        """Batch norm whose scale and shift are constants: no parameters, nothing kept."""
        width = float(given.channels)
        self._op(Elementwise(name="fixed_scale", rows=given.rows, reads=width, writes=width))
        return self._made(given.channels, given.size)

    def layer_norm(self, given: Feature) -> Feature:
        """Layer norm over the channels of each position."""
        out = f"{self._block}/{len(self._ops)}_normed"
        self.part(layer_norm("layer_norm", given.name, out, given.channels, rows=given.rows))
        return given._replace(name=out, kept=False)

    def act(self, given: Feature, kind: str = "relu") -> Feature:
        """A nonlinearity; "none" is none."""
        if kind in ("none", "identity", ""):
            return given
        keeps_output = kind in _OUTPUT_KEPT
        out = f"{self._block}/{len(self._ops) + 1}"
        width = float(given.channels)
        self._op(
            Elementwise(
                name=kind,
                rows=given.rows,
                reads=width,
                writes=width,
                keeps=(out if keeps_output else given.name,),
            )
        )
        return self._made(given.channels, given.size, keeps_output)

    def conv_norm(
        self, given: Feature, channels: int, kernel: Kernel = 1, stride: Kernel = 1, **rest: Any
    ) -> Feature:
        """Convolution without bias and the network's norm."""
        return self.norm(self.conv(given, channels, kernel, stride, **rest), self._norm)

    def conv_norm_act(
        self,
        given: Feature,
        channels: int,
        kernel: Kernel = 1,
        stride: Kernel = 1,
        *,
        kind: str = "relu",
        **rest: Any,
    ) -> Feature:
        """Convolution, the network's norm and activation."""
        return self.act(self.conv_norm(given, channels, kernel, stride, **rest), kind)

    def pool(
        self,
        given: Feature,
        kernel: Kernel,
        stride: Kernel,
        *,
        padding: Kernel | None = None,
        kind: Literal["max", "mean"] = "max",
        ceil: bool = False,
    ) -> Feature:
        """Pooling over windows: both kinds keep their input, max pooling also where each maximum stood."""
        axes = len(given.size)
        paddings = (None,) * axes if padding is None else _each(padding, axes)
        windows = zip(given.size, _each(kernel, axes), _each(stride, axes), paddings, strict=True)
        size = tuple(strided(length, window, step, pad, 1, ceil) for length, window, step, pad in windows)
        share = prod(given.size) / prod(size)
        indices = f"{self._block}/{len(self._ops)}_indices"
        self._op(
            Elementwise(
                name=f"{kind}_pool",
                rows=fixed(prod(size)),
                reads=given.channels * share,
                writes=float(given.channels),
                keeps=(given.name, indices),
            )
        )
        if kind == "max":
            self._tensor(indices, given.channels, fixed(prod(size)), "int64")
        return self._made(given.channels, size)

    def blur(self, given: Feature, stride: int) -> Feature:
        """Smoothing by a fixed 3x3 filter of each channel."""
        return self.conv(
            given, given.channels, 3, stride, groups=given.channels, is_constant=True, name="blur"
        )

    def global_pool(self, given: Feature) -> Feature:
        """The mean over all positions; its gradient needs nothing."""
        self._op(
            Elementwise(
                name="global_pool",
                rows=SAMPLE,
                reads=given.channels * float(prod(given.size)),
                writes=float(given.channels),
            )
        )
        return self._made(given.channels, (1,) * len(given.size))

    def add(self, given: Feature, other: Feature) -> Feature:
        """The sum of two activations of one shape."""
        width = float(given.channels)
        self._op(Elementwise(name="add", rows=given.rows, reads=2 * width, writes=width))
        return self._made(given.channels, given.size)

    def multiply(self, given: Feature, gate: Feature) -> Feature:
        """Each channel (or element) times its gate; both stay for backward."""
        width = float(given.channels)
        keeps = (given.name, gate.name)
        self._op(Elementwise(name="multiply", rows=given.rows, reads=2 * width, writes=width, keeps=keeps))
        return self._made(given.channels, given.size)

    def scale(self, given: Feature, learned: int | None = None) -> Feature:
        """A learned factor for each channel."""
        width = float(given.channels)
        self._op(
            Elementwise(
                name="scale",
                rows=given.rows,
                reads=width,
                writes=width,
                parameters=given.channels if learned is None else learned,
                keeps_for_weight=(given.name,),
            )
        )
        return self._made(given.channels, given.size)

    def concat(self, features: Sequence[Feature]) -> Feature:
        """Channels one after the other, copied into a new tensor."""
        width = float(sum(feature.channels for feature in features))
        first = features[0]
        self._op(Elementwise(name="concat", rows=first.rows, reads=width, writes=width))
        return self._made(int(width), first.size)

    def shuffle(self, given: Feature) -> Feature:
        """Channels in another order, copied into a new tensor."""
        width = float(given.channels)
        self._op(Elementwise(name="shuffle", rows=given.rows, reads=width, writes=width))
        return self._made(given.channels, given.size)

    def resize(self, given: Feature, size: tuple[int, ...]) -> Feature:
        """Nearest or linear interpolation to another size."""
        share = prod(given.size) / prod(size)
        width = float(given.channels)
        self._op(Elementwise(name="resize", rows=fixed(prod(size)), reads=width * share, writes=width))
        return self._made(given.channels, size)

    def linear(
        self,
        given: Feature,
        channels: int,
        *,
        bias: bool = True,
        name: str = "linear",
        quantisable: bool = True,
    ) -> Feature:
        """A matrix applied at each position."""
        self._op(
            Matmul(
                name=name,
                rows=given.rows,
                k=given.channels,
                n=channels,
                bias=bias,
                quantisable=quantisable,
                keeps_for_weight=(given.name,),
            )
        )
        return self._made(channels, given.size)

    def flatten(self, given: Feature) -> Feature:
        """All elements as channels of one position: the same tensor under a new shape."""
        return given._replace(channels=given.channels * prod(given.size), size=(1,) * len(given.size))

    def squeeze_excite(
        self, given: Feature, reduced: int, *, kind: str = "relu", gate: str = "sigmoid"
    ) -> Feature:
        """Channels gated by two 1x1 convolutions of their mean."""
        small = self.act(self.conv(self.global_pool(given), reduced, bias=True), kind)
        return self.multiply(given, self.act(self.conv(small, given.channels, bias=True), gate))

    def dropout(self, given: Feature, probability: float) -> Feature:
        """Keeps a mask of one byte an element."""
        if not probability:
            return given
        mask, width = f"{given.name}_mask", float(given.channels)
        self._op(Elementwise(name="dropout", rows=given.rows, reads=width, writes=width, keeps=(mask,)))
        self._tensor(mask, width, given.rows, "byte")
        return self._made(given.channels, given.size)

    def classify(self, given: Feature, classes: int, *, dropped: float = 0.0, bias: bool = True) -> Feature:
        """The classifier on pooled features, and cross-entropy."""
        given = self.dropout(given, dropped)
        logits = self.linear(given, classes, bias=bias, name="classifier", quantisable=False)
        self.part(loss(classes, SAMPLE))
        return logits
