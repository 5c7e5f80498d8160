"""YOLO11: bottlenecks within bottlenecks, attention at the coarsest level, a lighter class branch.

Layers as in ultralytics (cfg/models/11/yolo11.yaml, nn/modules/block.py). From scale m on every block has the
inner bottlenecks (`has_inner`).
"""

from __future__ import annotations

from math import prod

from raceline.models.families.convnet import Feature, Make
from raceline.models.families.layers import Heads, Part, attend
from raceline.models.families.transformer import loss
from raceline.models.families.yolo import BINS, Network
from raceline.models.graph import fixed

_WIDTHS = ((256, 0.25, False), (512, 0.25, False), (512, 0.5, True), (1024, 0.5, True))
_DOWN = (128, 256, 512, 1024)
_HEAD_DIM = 64


class Version11(Network):
    """The third network: stages, neck and heads of its own cells."""

    def backbone(self, x: Feature) -> list[Feature]:
        """Features at strides 8, 16 and 32, the last after pooling and attention."""
        found = []
        for index, (down, (channels, ratio, is_inner)) in enumerate(zip(_DOWN, _WIDTHS, strict=True)):
            x = self.drawing.block(f"stage{index + 1}", x, self._stage(down, channels, ratio, is_inner))
            found.append(x)
        x = self.drawing.block("pyramid_pool", x, self.pyramid)
        return [found[1], found[2], self.drawing.block("attention", x, self._attention)]

    def _stage(self, down: int, channels: int, ratio: float, is_inner: bool) -> Make:
        narrow, wide = self.scale.channels(down), self.scale.channels(channels)

        def make(given: Feature) -> Feature:
            y = self.conv(given, narrow, 3, 2)
            return self.split_cells(y, wide, self.scale.repeats(2), is_inner or self.scale.has_inner, ratio)

        return make

    def cells(self, x: Feature, channels: int, repeats: int, has_shortcut: bool) -> Feature:
        """The neck's cells: the inner bottlenecks stand at the coarsest level and in large scales."""
        is_coarsest = channels == self.scale.channels(1024) and self.scale.channels(512) != channels
        return self.split_cells(x, channels, self.scale.repeats(2), self.scale.has_inner or is_coarsest, 0.5)

    def split_cells(self, x: Feature, channels: int, repeats: int, is_inner: bool, ratio: float) -> Feature:
        """Halves of one convolution; every cell's output is joined to them."""
        half = int(channels * ratio)
        both = self.conv(x, 2 * half)
        parts, y = [both], both._replace(channels=half)
        for _ in range(repeats):
            y = self._inner(y, half) if is_inner else self._bottleneck(y, half // 2)
            parts.append(y)
        return self.conv(self.drawing.concat(parts), channels)

    def _bottleneck(self, x: Feature, middle: int) -> Feature:
        return self.drawing.add(self.conv(self.conv(x, middle, 3), x.channels, 3), x)

    def _inner(self, x: Feature, channels: int) -> Feature:
        half = channels // 2
        y, other = self.conv(x, half), self.conv(x, half)
        for _ in range(2):
            y = self._bottleneck(y, half)
        return self.conv(self.drawing.concat([y, other]), channels)

    def _attention(self, given: Feature) -> Feature:
        """Attention and a feed-forward network on one half of the channels."""
        half = given.channels // 2
        both = self.conv(given, 2 * half)
        y = both._replace(channels=half)
        for index in range(self.scale.repeats(2)):
            y = self.drawing.add(self._heads(y, f"attention{index}"), y)
            wide = self.conv(y, 2 * half)
            y = self.drawing.add(self.drawing.conv_norm(wide, half), y)
        return self.conv(self.drawing.concat([both._replace(channels=half), y]), given.channels)

    def _heads(self, x: Feature, prefix: str) -> Feature:
        draw, count = self.drawing, max(1, x.channels // _HEAD_DIM)
        key = x.channels // count // 2
        draw.conv_norm(x, x.channels + 2 * key * count)
        shape = Heads(
            query=count, kv=count, dim=key, value_dim=x.channels // count, causal=False, rotary=False,
            score_upcast=False,
        )  # fmt: skip
        core: Part = attend(shape, x.rows, x.rows, prefix)
        draw.part(core)
        mixed = x._replace(name=f"{prefix}_core", kept=False)
        places = draw.conv_norm(mixed, x.channels, 3, groups=x.channels)
        return draw.conv_norm(draw.add(mixed, places), x.channels)

    def detect(self, levels: list[Feature], classes: int) -> Feature:
        """Boxes as distributions, classes from depthwise and 1x1 convolutions."""
        draw = self.drawing
        box, wide = max(16, levels[0].channels // 4, 4 * BINS), max(levels[0].channels, min(classes, 100))
        for level in levels:
            draw.conv(self.conv(self.conv(level, box, 3), box, 3), 4 * BINS, bias=True)
            y = level
            for _ in range(2):
                y = self.conv(self._depthwise(y), wide)
            y = draw.conv(y, classes, bias=True)
        places = fixed(sum(prod(level.size) for level in levels))
        draw.scale(Feature("bins", 4, (int(places.fixed),)), learned=BINS)
        draw.part(loss(classes + 4 * BINS, places))
        return y

    def _depthwise(self, x: Feature) -> Feature:
        return self.drawing.conv_norm_act(x, x.channels, 3, groups=x.channels, kind="silu")
