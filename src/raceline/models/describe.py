"""`describe`: what a model is made of, in totals and block by block."""

from __future__ import annotations

import msgspec

from raceline.models import count
from raceline.models.graph import Attention, Model
from raceline.present.errors import Message, message
from raceline.present.views import Cell, Column, Group, Heading, Part, Quantity, Table, Text, View

PRECISIONS = ("fp32", "bf16", "fp8", "int4")


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a model at a batch and length. FLOPs are of one forward pass; `saved_bytes` are the
    activations that eager training in bf16 keeps for backward with a fused attention kernel."""

    model: str
    family: str
    architecture: str
    parameters: int
    parameters_active: int
    weight_bytes: dict[str, float]
    flops: float
    saved_bytes: float
    kv_bytes_per_token: float
    attention: str
    precision: str | None
    weight_format: str | None
    unit: str
    batch: int
    seq_len: int
    target_len: int
    image_size: int | None
    max_seq_len: int | None
    blocks: tuple[count.BlockRow, ...]
    source: str
    notes: tuple[Message, ...] = ()
    schema: str = "raceline.describe/1"

    def view(self) -> View:
        """The screen of `raceline describe`."""
        return _view(self)


def describe_model(model: Model, batch: int = 1, seq_len: int | None = None) -> Description:
    """The totals of a model; lengths that are left out are the model's own defaults."""
    length, target = count.lengths(model, seq_len, None)
    return Description(
        model=model.name,
        family=model.family,
        architecture=model.architecture,
        parameters=count.parameters(model),
        parameters_active=count.parameters_active(model),
        weight_bytes={name: count.weight_bytes(model, name) for name in PRECISIONS},
        flops=count.flops(model, batch, length, target),
        saved_bytes=count.saved_bytes(model, batch, length, target),
        kv_bytes_per_token=count.kv_bytes_per_token(model),
        attention=attention_kind(model),
        precision=model.precision,
        weight_format=model.weight_format,
        unit=model.unit,
        batch=batch,
        seq_len=int(length),
        target_len=int(target),
        image_size=model.image_size,
        max_seq_len=model.max_seq_len,
        blocks=tuple(count.rows(model, batch, length, target)),
        source=model.source,
        notes=tuple(message(note) for note in model.notes),
    )


def describe(
    reference: str | Model, *, batch: int = 1, seq_len: int | None = None, image_size: int | None = None
) -> Description:
    """The totals of a model by name, file or folder: ``raceline.describe("llama-3.1-8b").parameters``."""
    from raceline.models.read import read_model

    model = reference if isinstance(reference, Model) else read_model(reference, image_size=image_size)
    return describe_model(model, batch, seq_len)


def attention_kind(model: Model) -> str:
    """MHA, GQA, MQA or MLA, with ``sliding`` where windows are used; ``none`` without attention."""
    kinds: list[str] = []
    for block in model.blocks:
        for op in block.ops:
            if isinstance(op, Attention):
                kinds.append(_kind(op))
                if op.window:
                    kinds.append("sliding")
    return "+".join(dict.fromkeys(kinds)) or "none"


def _kind(op: Attention) -> str:
    if 0 < op.cache_width < op.kv_heads * (op.head_dim + op.value_dim):
        return "MLA"
    if op.kv_heads == op.heads:
        return "MHA"
    return "MQA" if op.kv_heads == 1 else "GQA"


def _view(result: Description) -> View:
    rows: list[tuple[Cell, ...]] = [
        (message("models.label_parameters"), Quantity(result.parameters, "count"), f"{result.parameters:,}")
    ]
    if result.parameters_active != result.parameters:
        active = (
            message("models.label_active"),
            Quantity(result.parameters_active, "count"),
            f"{result.parameters_active:,}",
        )
        rows.append(active)
    weights: list[Part] = ["bf16 ·"]
    for name, size in result.weight_bytes.items():
        weights += [name, Quantity(size, "bytes")] if name != "bf16" else []
    rows.append(
        (message("models.label_weights"), Quantity(result.weight_bytes["bf16"], "bytes"), tuple(weights))
    )
    per = result.batch * max(result.seq_len if result.unit == "token" else 1, 1)
    unit = message(f"models.per_{result.unit}")
    rows.append((message("models.label_flops"), Quantity(result.flops / per, "flops"), unit))
    rows.append((message("models.label_saved"), Quantity(result.saved_bytes / per, "bytes"), unit))
    if result.kv_bytes_per_token:
        rows.append(
            (
                message("models.label_cache"),
                Quantity(result.kv_bytes_per_token, "bytes"),
                message("models.per_token"),
            )
        )
    rows.append((message("models.label_attention"), result.attention, ""))
    rows.append((message("models.label_trained"), result.weight_format or result.precision or "–", ""))
    columns = (Column(""), Column("", align="right"), Column(""))
    return Group(
        (
            Heading((result.model, "·", result.architecture), aside=_size(result)),
            Table(columns, tuple(rows), has_header=False),
            _blocks(result),
            *(Text(note, tone="note") for note in result.notes),
        )
    )


def _size(result: Description) -> Message:
    if result.image_size:
        return message("models.at_image", batch=result.batch, image_size=result.image_size)
    if result.seq_len <= 1:
        return message("models.at_batch", batch=result.batch)
    return message("models.at_length", batch=result.batch, seq_len=result.seq_len)


def _blocks(result: Description) -> Table:
    columns = (
        Column(message("models.column_block")),
        Column("×", align="right"),
        Column(message("models.column_parameters"), align="right"),
        Column(message("models.column_flops"), align="right"),
        Column(message("models.column_saved"), align="right"),
    )
    rows = tuple(
        (
            f"{row.component}.{row.name}" if row.component else row.name, row.repeat,
            Quantity(row.parameters, "count"), Quantity(row.flops, "flops"), Quantity(row.saved_bytes, "bytes"),
        )
        for row in result.blocks
    )  # fmt: skip
    return Table(columns, rows)
