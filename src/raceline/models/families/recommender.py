"""Recommenders: embedding tables of rows x width, small dense networks, and a rank for each pair.

Configs are few fields (all widths in elements, a table's lookups per sample):

- `dlrm` (arXiv:1906.00091): `num_dense_features`, `table_rows` (a list), `embedding_dim`, `lookups` (one
  number or one for each table), `bottom_mlp`, `top_mlp`, `interaction`: dot (default), cat or dcn
  (arXiv:2008.13535, with `cross_layers` and `cross_rank`).
- `wide_deep` (arXiv:1606.07792): the same tables, `mlp`, and a linear model over all rows.
- `two_tower`: `user` and `item`, each with `table_rows`, `lookups` and `num_dense_features`; `embedding_dim`
  and `mlp` of both.

Tables are sharded over all devices (`Embedding.sharded_table`), so that lookups cross them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from raceline.models.families.images import same_length, whole_numbers
from raceline.models.families.layers import Part, block, elementwise, join, linear, tensor
from raceline.models.families.transformer import describe, grouped
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Block, Embedding, Loss, Matmul, Model
from raceline.present.errors import InputError

_LARGEST_TABLE = 10**11
_INTERACTIONS = ("dot", "cat", "dcn")


class _Table(NamedTuple):
    """A table's rows, and how many of them one sample looks up."""

    rows: int
    lookups: int


def build_dlrm(fields: Fields, image_size: int | None = None) -> Model:
    """DLRM: dense features through a bottom network, pairs of all vectors, a top network."""
    tables, width = _tables(fields), _width(fields)
    dense = fields.integer("num_dense_features", default=13, maximum=100_000)
    bottom = _widths(fields, "bottom_mlp", [512, 256, width])
    kind = fields.text("interaction", default="dot")
    vectors = len(tables) + 1
    crossed = vectors * width
    blocks = [_lookups("tables", tables, width), _network("bottom_mlp", dense, bottom, ends_in_relu=True)]
    if kind == "dcn":
        layers = fields.integer("cross_layers", default=3, maximum=1000)
        rank = fields.integer("cross_rank", default=512, maximum=100_000)
        blocks.append(_cross(crossed, rank, layers))
    elif kind == "dot":
        blocks.append(_pairs(vectors, width, bottom[-1]))
        crossed = vectors * (vectors - 1) // 2 + bottom[-1]
    elif kind not in _INTERACTIONS:
        field = fields.where + "interaction"
        raise InputError("models.block_unknown", field=field, given=kind[:60], known=", ".join(_INTERACTIONS))
    top = _widths(fields, "top_mlp", [1024, 1024, 512, 256, 1])
    blocks.append(_network("top_mlp", crossed, top))
    return _model(fields, "dlrm", [*blocks, _rank(top[-1])], width)


def build_wide_deep(fields: Fields, image_size: int | None = None) -> Model:
    """Wide & Deep: a linear model over the sparse features beside a network over their vectors."""
    tables, width = _tables(fields), _width(fields)
    dense = fields.integer("num_dense_features", default=13, minimum=0, maximum=100_000)
    widths = _widths(fields, "mlp", [1024, 512, 256, 1])
    given = len(tables) * width + dense
    wide = elementwise("wide_dense", dense, 1, rows=SAMPLE, parameters=dense + 1)
    blocks = [
        _lookups("wide_tables", tables, 1, wide),
        _lookups("tables", tables, width),
        _network("deep", given, widths),
        _rank(1),
    ]
    return _model(fields, "wide_deep", blocks, width)


def build_two_tower(fields: Fields, image_size: int | None = None) -> Model:
    """Two towers, of the user and of the item, and the product of their last vectors."""
    width, blocks = _width(fields), []
    widths = _widths(fields, "mlp", [512, 256, 128])
    for side in ("user", "item"):
        part = fields.part(side)
        tables = _tables(part)
        dense = part.integer("num_dense_features", default=0, minimum=0, maximum=100_000)
        blocks.append(_lookups(f"{side}.tables", tables, width, component=side))
        blocks.append(_network(f"{side}.mlp", len(tables) * width + dense, widths, component=side))
    product = join(
        tensor("vectors", 2.0 * widths[-1], SAMPLE),
        elementwise("product", 2.0 * widths[-1], 1, rows=SAMPLE, keeps=("vectors",)),
    )
    return _model(fields, "two_tower", [*blocks, _rank(1, product)], width)


def _model(fields: Fields, name: str, blocks: Sequence[Block], width: int) -> Model:
    """A sample is one impression: no length, no image."""
    layers = sum(one.repeat for one in blocks if one.role == "body")
    model = describe(
        fields, "recommender", blocks, unit="sample", objective="rank", seq_len=0, hidden=width, layers=layers
    )
    return msgspec.structs.replace(model, architecture=name, max_seq_len=None)


def _width(fields: Fields) -> int:
    return int(fields.integer("embedding_dim", default=128, maximum=65_536))


def _widths(fields: Fields, name: str, default: Sequence[int]) -> list[int]:
    """The widths of a network's layers, of which there is one at least."""
    widths = whole_numbers(fields, name, default, 100_000)
    same_length(**{name: widths})
    return widths


def _tables(fields: Fields) -> list[_Table]:
    rows = whole_numbers(fields, "table_rows", [], _LARGEST_TABLE)
    stated = fields.values.get("lookups")
    lookups = whole_numbers(fields, "lookups", [], 100_000) if isinstance(stated, (list, tuple)) else None
    one = 1 if lookups else fields.integer("lookups", default=1, maximum=100_000)
    lookups = lookups or [one] * len(rows)
    same_length(table_rows=rows, lookups=lookups)
    return [_Table(*pair) for pair in zip(rows, lookups, strict=True)]


def _lookups(name: str, tables: list[_Table], width: int, *more: Part, component: str = "") -> Block:
    """Sums of the rows that a sample names, in each table; the gradient needs their numbers."""
    ops = [
        Embedding(
            name="table",
            rows=SAMPLE,
            count=count,
            entries=table.rows,
            width=width,
            lookups=table.lookups,
            sharded_table=True,
            keeps_for_weight=("ids",),
        )
        for table, count in grouped(tables)
    ]
    ids = float(sum(table.lookups for table in tables))
    return block(
        name, Part(tuple(ops)), tensor("ids", ids, SAMPLE, "int64"), *more, role="input", component=component
    )


def _network(
    name: str, given: int, widths: Sequence[int], *, ends_in_relu: bool = False, component: str = ""
) -> Block:
    """Fully connected layers with ReLU between them, whose output the next one keeps anyway."""
    parts, at = [tensor("input", given, SAMPLE)], "input"
    for index, width in enumerate(widths):
        out = f"hidden{index}"
        parts.append(linear("linear", at, given, width, rows=SAMPLE, bias=True))
        if index < len(widths) - 1 or ends_in_relu:
            parts.append(elementwise("relu", width, width, rows=SAMPLE, keeps=(out,)))
        parts.append(tensor(out, width, SAMPLE))
        given, at = width, out
    return block(name, *parts, boundary="input", component=component)


def _pairs(vectors: int, width: int, dense: int) -> Block:
    """Products of all pairs of vectors: one matrix times itself for each sample, of which a triangle is
    taken and the dense vector joined. Its FLOPs stand as a product without weights of its own."""
    product = Matmul(
        name="pairs",
        rows=SAMPLE,
        k=vectors * width,
        n=vectors,
        tied=True,
        quantisable=False,
        keeps=("vectors",),
    )
    pairs = vectors * (vectors - 1) // 2
    return block(
        "interaction",
        tensor("vectors", float(vectors * width), SAMPLE),
        Part((product,)),
        tensor("triangle", 2.0 * pairs, SAMPLE, "int64"),
        elementwise("triangle", vectors * vectors, pairs + dense, rows=SAMPLE),
        boundary="vectors",
    )


def _cross(width: int, rank: int, layers: int) -> Block:
    """DCN v2 of low rank: x0 * (U V x + b) + x. x0 is the first layer's input, which stays anyway."""
    return block(
        "cross",
        tensor("input", width, SAMPLE),
        linear("v", "input", width, rank, rows=SAMPLE, out="low"),
        linear("u", "low", rank, width, rows=SAMPLE, bias=True, out="gate"),
        elementwise("cross", 3.0 * width, width, rows=SAMPLE, keeps=("gate",)),
        repeat=layers,
        boundary="input",
    )


def _rank(width: int, *parts: Part) -> Block:
    """The loss over one value a sample: a click or none."""
    return block(
        "output",
        *parts,
        tensor("labels", 2.0, SAMPLE, "fp32"),
        elementwise("sigmoid", width, width, rows=SAMPLE, keeps=("labels",)),
        Part((Loss(name="loss", rows=SAMPLE, classes=1),)),
        role="output",
    )
