"""Mask DINO: queries that decode to boxes and masks over a deformable encoder (arXiv:2206.02777).

Training adds `denoising_queries`, noised boxes of both kinds. Coarse: backbone, pixel encoder, decoder and
the masks of every decoder layer; positional and box heads and the matching are left out.
"""

from __future__ import annotations

from math import ceil, prod

from raceline.models.families.convnet import Drawing, Feature
from raceline.models.families.images import classes_of, image_model, image_size_of, pixels
from raceline.models.families.layers import Heads, Part, attention, elementwise, join, linear, mlp, tensor
from raceline.models.families.resnet import backbone
from raceline.models.families.transformer import layer, loss
from raceline.models.fields import Fields
from raceline.models.graph import Block, Extent, Matmul, Model, fixed

_HEADS, _POINTS = 8, 4


def build(fields: Fields, image_size: int | None = None) -> Model:
    """A segmenter of a ResNet, encoder and decoder layers. The side is padded to a multiple of 64."""
    side = ceil(image_size_of(fields, image_size, 1024) / 64) * 64
    hidden = fields.integer("hidden_size", default=256, maximum=65_536)
    inner = fields.integer("intermediate_size", default=2048)
    asked = fields.integer("num_queries", default=300, maximum=100_000)
    noised = fields.integer("denoising_queries", default=200, minimum=0, maximum=100_000)
    queries = fixed(asked + noised)
    drawing = Drawing()
    spec = fields.part("backbone", default=None) or Fields({}, fields.where + "backbone.")
    levels = backbone(drawing, spec, pixels(side))
    places = fixed(sum(prod(level.size) for level in levels[1:]) + (side // 64) ** 2)
    drawing.block("projections", levels[-1], lambda given: _project(drawing, [*levels[1:-1], given], hidden))
    encoder = _layers("encoder", hidden, inner, places, places, fields.integer("encoder_layers", default=6))
    pixel = _pixel_block(drawing, levels[0], hidden)
    decoder = _layers(
        "decoder", hidden, inner, queries, places, fields.integer("decoder_layers", default=9),
        mask_places=fixed(prod(levels[0].size)),
    )  # fmt: skip
    classes = classes_of(fields, 80)
    output = Block(
        name="output",
        role="output",
        ops=(
            *linear("classes", "last", hidden, classes, rows=queries, bias=True).ops,
            *loss(classes, queries).ops,
        ),
        tensors=(*tensor("last", hidden, queries).tensors, *loss(classes, queries).tensors),
    )
    return image_model(
        fields, "mask_queries", [*drawing.blocks[:-1], encoder, pixel, decoder, output], side,
        objective="detect", hidden=hidden, notes=("models.coarse_graph",),
    )  # fmt: skip


def _project(drawing: Drawing, levels: list[Feature], hidden: int) -> Feature:
    """One 1x1 convolution with group norm a level, and a strided one for the coarsest."""
    for level in levels:
        drawing.norm(drawing.conv(level, hidden, bias=True), "group")
    return drawing.norm(drawing.conv(levels[-1], hidden, 3, 2, bias=True), "group")


def _pixel_block(drawing: Drawing, finest: Feature, hidden: int) -> Block:
    """The features at stride 4 that masks are taken from."""

    def make(given: Feature) -> Feature:
        lateral = drawing.norm(drawing.conv(given, hidden), "group")
        out = drawing.act(drawing.norm(drawing.conv(lateral, hidden, 3), "group"))
        return drawing.conv(out, hidden, bias=True)

    drawing.block("mask_features", finest, make, owns_input=False)
    return drawing.blocks[-1]


def _layers(
    name: str,
    hidden: int,
    inner: int,
    rows: Extent,
    places: Extent,
    count: int,
    mask_places: Extent | None = None,
) -> Block:
    """Encoder layers attend by sampling; decoder layers to each other first, and give masks."""
    heads = Heads(query=_HEADS, kv=_HEADS, dim=hidden // _HEADS, causal=False, rotary=False)

    def sample(given: str, out: str) -> Part:
        return _deformable(given, out, hidden, rows, places)

    def attend(given: str, out: str) -> Part:
        return attention(given, hidden, heads, rows=rows, bias=(True, True, True, True), out=out)

    def feed(given: str, out: str) -> Part:
        parts = mlp(given, hidden, inner, activation_kind="relu", gated=False, bias=True, rows=rows, out=out)
        return join(parts, _masks(hidden, rows, mask_places) if mask_places else None)

    between = (sample, "sampled") if mask_places else None
    return layer(
        name, hidden, attend if mask_places else sample, feed, arrangement="post_add", norm_kind="layer",
        rows=rows, between=between, repeat=count,
    )  # fmt: skip


def _deformable(given: str, out: str, hidden: int, rows: Extent, places: Extent) -> Part:
    """Samples of 4 levels x 4 points a head (arXiv:2010.04159): keeps values, offsets and weights."""
    samples = _HEADS * 4 * _POINTS
    return join(
        linear("value", given, hidden, hidden, rows=places, bias=True, out=f"{out}_value"),
        linear("offsets", given, hidden, 2 * samples, rows=rows, bias=True, out=f"{out}_offsets"),
        linear("weights", given, hidden, samples, rows=rows, bias=True, out=f"{out}_weights"),
        elementwise(
            "sample", samples * hidden / _HEADS * 4, hidden, rows=rows,
            keeps=(f"{out}_value", f"{out}_offsets", f"{out}_weights"),
        ),
        tensor(f"{out}_sampled", hidden, rows),
        linear("sample_out", f"{out}_sampled", hidden, hidden, rows=rows, bias=True, out=out),
    )  # fmt: skip


def _masks(hidden: int, rows: Extent, places: Extent) -> Part:
    """Three layers to a mask embedding, and its product with every pixel feature, which stays for the loss."""
    embedding = [
        linear(f"mask{index}", "mask_in", hidden, hidden, rows=rows, bias=True) for index in range(3)
    ]
    product = Matmul(name="masks", rows=places, k=hidden, n=int(rows.fixed), tied=True, quantisable=False)
    kept = elementwise("mask_loss", rows.fixed, 0, rows=places, keeps=("masks",))
    return join(
        tensor("mask_in", 3 * hidden, rows),
        *embedding,
        Part((product,)),
        tensor("masks", rows.fixed, places),
        kept,
    )
