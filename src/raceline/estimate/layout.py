"""A model's ops as columns: what one device holds and does, before batch and lengths are known.

Rows of a table stand for the distinct ops of the graph. `group` says where an op sits:
input (first pipeline stage), body (cut over stages), output (last stage) or frozen (a component
that training doesn't touch, run forward only, whole on every device).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from raceline.models.graph import (
    AnyOp,
    Attention,
    Block,
    Convolution,
    Elementwise,
    Embedding,
    Extent,
    Loss,
    Matmul,
    Model,
    Norm,
    Scan,
    Tensor,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

INPUT, BODY, OUTPUT, FROZEN = range(4)
GROUPS = 4
SPLIT, REPLICATED, EXPERT, TABLE = range(4)
_GROUP_OF = {"input": INPUT, "body": BODY, "output": OUTPUT}
_LORA_DEFAULT_RANK = 16


@dataclass(frozen=True, slots=True)
class Columns:
    """One value per row of a table, by name; `extents` is rows x (fixed, token, target)."""

    group: NDArray[np.int64]
    extents: Floats
    count: Floats
    values: dict[str, Floats] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Floats:
        return self.values[name]

    def __len__(self) -> int:
        return len(self.group)

    def by_block(self) -> Floats:
        """rows x blocks: for one repeat of each block of the body, the share of a row's count."""
        blocks, at = (
            np.unique(self["block"], return_inverse=True) if len(self) else (np.zeros(0), np.zeros(0, int))
        )
        selector = np.zeros((len(self), len(blocks)))
        is_body = self.group == BODY
        selector[np.arange(len(self))[is_body], at[is_body]] = (self.count / self["repeat"])[is_body]
        return selector

    def by_group(self) -> Floats:
        """rows x GROUPS: 1 where a row belongs to a group; sums are matrix products with it."""
        selector = np.zeros((len(self.group), GROUPS))
        selector[np.arange(len(self.group)), self.group] = 1.0
        return selector


@dataclass(frozen=True, slots=True)
class ModelTable:
    """Columns of a model under one method of training (or for inference).

    `parameters`[group, kind]: elements by kind of sharding (SPLIT by tensor parallelism,
    REPLICATED, EXPERT, TABLE: an embedding table sharded over all devices). `trainable` likewise,
    adapters apart in `adapters`[group]. `quantisable`: elements that weight quantisers take.
    `tied`[kind]: elements that the output shares with the input; a last pipeline stage holds a copy.
    `boundary`: elements kept at a layer's edge under full recompute, by extent.
    """

    model: Model
    matmul: Columns
    convolution: Columns
    attention: Columns
    traffic: Columns
    tensors: Columns
    parameters: Floats
    trainable: Floats
    quantisable: Floats
    tied: Floats
    adapters: Floats
    layers: int
    boundary: Floats
    classes: float
    loss_extent: Floats
    experts: int
    hidden: float
    is_trained: bool


def tabulate(
    model: Model,
    method: str | None,
    lora_rank: int | None = None,
    lora_targets: tuple[str, ...] | None = None,
    components: tuple[str, ...] | None = None,
) -> ModelTable:
    """The columns of `model` when trained by `method` (None: inference)."""
    blocks = [block for block in model.blocks if components is None or block.component in components]
    if model.objective == "masked" and method == "pretrain":
        blocks.append(_masked_head(model))
    build = _Builder(method, lora_rank or _LORA_DEFAULT_RANK, lora_targets)
    for block in blocks:
        build.add(block)
    return build.table(model, blocks)


def _extent(extent: Extent) -> tuple[float, float, float]:
    return extent.fixed, extent.per_token, extent.per_target


class _Builder:
    """Collects rows op by op; `table` closes it."""

    def __init__(self, method: str | None, rank: int, targets: tuple[str, ...] | None) -> None:
        self.method = method
        self.rank = rank
        self.targets = targets
        self.rows: dict[str, list[tuple[object, ...]]] = {
            "matmul": [], "convolution": [], "attention": [], "traffic": [], "tensors": []
        }  # fmt: skip
        self.parameters = np.zeros((GROUPS, 4))
        self.trainable = np.zeros((GROUPS, 4))
        self.quantisable = np.zeros((GROUPS, 4))
        self.tied = np.zeros(4)
        self.adapters = np.zeros(GROUPS)
        self.blocks = 0

    def add(self, block: Block) -> None:
        trains = self.method is not None and block.trained
        group = _GROUP_OF[block.role] if block.trained or self.method is None else FROZEN
        self.blocks += 1
        if block.runs_in not in ("both", "train" if self.method is not None else "infer"):
            for op in block.ops:
                self._add_parameters(op, group, float(block.repeat * op.count), trains)
            return
        needed: set[str] = set()
        for op, wider in zip(block.ops, _wider(block.ops), strict=True):
            weight = trains and (self.method in ("pretrain", "full") or self._is_target(op))
            self._add_op(op, block, group, trains, weight, wider)
            if trains:
                needed.update(op.keeps)
                if weight or self._keeps_quantised_input(op):
                    needed.update(op.keeps_for_weight)
        for tensor in block.tensors:
            if tensor.name in needed:
                self._add_tensor(tensor, block, group)

    def _is_target(self, op: AnyOp) -> bool:
        if self.method not in ("lora", "qlora") or not isinstance(op, Matmul) or not op.quantisable:
            return False
        return self.targets is None or any(target in op.name for target in self.targets)

    def _keeps_quantised_input(self, op: AnyOp) -> bool:
        """Matmuls with a 4- or 8-bit weight keep their input though the weight is frozen:
        https://github.com/bitsandbytes-foundation/bitsandbytes (autograd functions)."""
        return self.method == "qlora" and isinstance(op, Matmul) and op.quantisable

    def _add_op(self, op: AnyOp, block: Block, group: int, trains: bool, weight: bool, wider: float) -> None:
        repeats = float(block.repeat * op.count)
        self._add_parameters(op, group, repeats, trains)
        if isinstance(op, Matmul):
            self._add_matmul(op, group, repeats, trains, weight, wider)
        elif isinstance(op, Convolution):
            self._add_convolution(op, group, repeats, trains)
        elif isinstance(op, Attention):
            self._add_attention(op, block, group, trains)
        else:
            self._add_traffic(op, group, repeats, trains)

    def _add_matmul(
        self, op: Matmul, group: int, repeats: float, trains: bool, weight: bool, wider: float
    ) -> None:
        full = self.method in ("pretrain", "full")
        adapters = float(self.rank) if weight and not full else 0.0
        self.adapters[group] += adapters * (op.k + op.n) * op.experts * repeats
        self.rows["matmul"].append(
            (group, _extent(op.rows), repeats, float(op.k), float(op.n), float(op.split == "column"),
             float(op.split == "row"), float(op.experts), float(op.experts_per_token), float(trains),
             float(trains and full), float(op.k) * op.n, float(op.quantisable), adapters,
             wider)
        )  # fmt: skip

    def _add_convolution(self, op: Convolution, group: int, repeats: float, trains: bool) -> None:
        """A convolution. Nothing needs the gradient of the pixels, which the first one reads."""
        is_first = not self.rows["convolution"] and group == INPUT
        has_weight_gradient = trains and self.method in ("pretrain", "full")
        self.rows["convolution"].append(
            (group, _extent(op.rows), repeats, float(op.k), float(op.n), float(op.groups), op.input_elements,
             float(op.k) * op.n, float(trains and not is_first), float(has_weight_gradient))
        )  # fmt: skip

    def _add_attention(self, op: Attention, block: Block, group: int, trains: bool) -> None:
        repeats = float(block.repeat * op.count)
        self.rows["attention"].append(
            (group, _extent(op.rows), repeats, _extent(op.kv_rows), float(op.heads), float(op.kv_heads),
             float(op.head_dim), float(op.value_dim), float(op.causal), float(op.window or np.inf),
             float(op.cache_width), float(trains), op.score_copies, float(op.score_upcast),
             float(op.has_bias and op.rows.fixed > op.kv_rows.fixed), float(self.blocks), float(block.repeat))
        )  # fmt: skip

    def _add_traffic(self, op: AnyOp, group: int, repeats: float, trains: bool) -> None:
        elements, split, is_norm = _traffic(op)
        elements *= _SCAN_PASSES if isinstance(op, Scan) and self.method is not None else 1.0
        if elements:
            more, kernels = _eager(op)
            self.rows["traffic"].append(
                (group, _extent(op.rows), repeats, elements, split, is_norm, float(trains), more, kernels,
                 _plane(op))
            )  # fmt: skip

    def _add_parameters(self, op: AnyOp, group: int, repeats: float, trains: bool) -> None:
        kind, elements = parameters_of(op)
        if op.tied:
            self.tied[kind] += elements * repeats * (group == OUTPUT)
            return
        self.parameters[group, kind] += elements * repeats
        if isinstance(op, Matmul) and op.quantisable:
            self.quantisable[group, kind] += float(op.k) * op.n * op.experts * repeats
        # Tables of recommenders have sparse gradients and row-wise states: too small to count.
        if trains and kind != TABLE and self.method in ("pretrain", "full"):
            self.trainable[group, kind] += elements * repeats

    def _add_tensor(self, tensor: Tensor, block: Block, group: int) -> None:
        fixed_bytes = {"activation": 0.0, "fp32": 4.0, "byte": 1.0, "int64": 8.0}[tensor.element]
        self.rows["tensors"].append(
            (group, _extent(tensor.rows), float(block.repeat), float(tensor.width), fixed_bytes,
             float(tensor.split), float(tensor.eager), float(self.blocks), float(block.repeat))
        )  # fmt: skip

    def table(self, model: Model, blocks: list[Block]) -> ModelTable:
        body = [block for block in blocks if block.role == "body" and self._is_own(block)]
        loss = next((op for block in blocks for op in block.ops if isinstance(op, Loss)), None)
        experts = [op.experts for block in blocks for op in block.ops if isinstance(op, Matmul)]
        return ModelTable(
            model=model,
            matmul=_columns(
                self.rows["matmul"],
                ("k", "n", "column", "row", "experts", "experts_per_token", "backward", "weight_gradient",
                 "weights", "quantisable", "adapter_rank", "wider"),
            ),
            convolution=_columns(
                self.rows["convolution"],
                ("k", "n", "groups", "input_elements", "weights", "backward", "weight_gradient"),
            ),
            attention=_columns(
                self.rows["attention"],
                ("kv_fixed", "kv_token", "kv_target", "heads", "kv_heads", "head_dim", "value_dim", "causal",
                 "window", "cache_width", "backward", "score_copies", "score_upcast",
                 "window_bias", "block", "repeat"),
            ),
            traffic=_columns(
                self.rows["traffic"], ("elements", "split", "norm", "backward", "eager", "kernels", "plane")
            ),
            tensors=_columns(self.rows["tensors"], ("width", "fixed_bytes", "split", "eager", "block", "repeat")),
            parameters=self.parameters,
            trainable=self.trainable,
            quantisable=self.quantisable,
            tied=self.tied,
            adapters=self.adapters,
            layers=max(1, sum(block.repeat for block in body)),
            boundary=_boundary(body),
            classes=float(loss.classes) if loss else 0.0,
            loss_extent=np.array(_extent(loss.rows)) if loss else np.zeros(3),
            experts=max(experts, default=1),
            hidden=float(model.hidden),
            is_trained=self.method is not None,
        )  # fmt: skip

    def _is_own(self, block: Block) -> bool:
        return block.trained or self.method is None


def _masked_head(model: Model) -> Block:
    """What masked-language pretraining puts on an encoder: logits over the tied vocabulary."""
    head = Matmul(
        name="masked_head", k=model.hidden, n=model.vocabulary, split="column", tied=True, quantisable=False
    )
    return Block(name="masked_head", role="output", ops=(head, Loss(name="loss", classes=model.vocabulary)))


def parameters_of(op: AnyOp) -> tuple[int, float]:
    """How an op's parameters are sharded, and their number in one copy of the op."""
    if isinstance(op, Matmul):
        elements = float(op.k) * op.n * op.experts + (float(op.n) * op.experts if op.bias else 0.0)
        return (EXPERT if op.experts > 1 else REPLICATED if op.split == "none" else SPLIT), elements
    if isinstance(op, Convolution):
        return REPLICATED, float(op.k) * op.n + (op.n if op.bias else 0)
    if isinstance(op, Norm):
        return REPLICATED, float(op.width) * (int(op.weight) + int(op.bias))
    if isinstance(op, Embedding):
        kind = TABLE if op.sharded_table else REPLICATED if op.split == "none" else SPLIT
        return kind, float(op.entries) * op.width
    if isinstance(op, (Elementwise, Scan)):
        return REPLICATED, float(op.parameters)
    return REPLICATED, 0.0


def _traffic(op: AnyOp) -> tuple[float, float, float]:
    """Elements that a memory-bound op moves per position, whether tensor parallelism splits it,
    and whether it is a normalisation (which sequence parallelism splits)."""
    if isinstance(op, Norm):
        return 2.0 * op.width, 0.0, 1.0
    if isinstance(op, Elementwise):
        return op.reads + op.writes, float(op.split), 0.0
    if isinstance(op, Embedding):
        return 2.0 * op.width * op.lookups, 0.0, 0.0
    if isinstance(op, Scan):
        return 4.0 * op.inner, 1.0, 0.0
    return 0.0, 0.0, 0.0


# A chunked scan (Mamba 2) reads and writes its inputs, states and gates once for each of its kernels while training
# (https://github.com/state-spaces/mamba, ssd_combined.py).
_SCAN_PASSES = 4.0
# Plain PyTorch writes out each step: bytes over those of one fused kernel, and kernels. An RMS norm is cast
# to 32 bits, squared, averaged, scaled, cast back and weighted: 30 bytes an element where 4 would do; rotary
# embeddings are sliced, negated, concatenated, multiplied twice and added for queries and for keys
# (https://github.com/huggingface/transformers, modeling_llama.py).
_EAGER_RMS, _EAGER_ROTARY = (7.0, 8.0), (4.0, 14.0)


def _eager(op: AnyOp) -> tuple[float, float]:
    """Bytes over a fused kernel's, and kernels, of a memory-bound op in plain PyTorch."""
    if isinstance(op, Norm) and op.style == "rms":
        return _EAGER_RMS
    return _EAGER_ROTARY if op.name.endswith("rotary") else (1.0, 1.0)


# Ops of an image's positions: not one, elementwise, batch norm, another norm.
NO_PLANE, PLANE, BATCH_NORM, PLANE_NORM = range(4)


def _plane(op: AnyOp) -> float:
    if op.rows.per_token or op.rows.per_target:
        return float(NO_PLANE)
    if isinstance(op, Norm):
        return float(BATCH_NORM if op.style == "batch" else PLANE_NORM)
    return float(PLANE)


def _wider(ops: Sequence[AnyOp]) -> list[float]:
    """How much wider each op is where neighbours over the same input run as one product, as engines
    join query, key and value, and gate and up."""
    runs = [list(run) for _, run in groupby(ops, key=_shared_input)]
    return [
        sum(other.n for other in run if isinstance(other, Matmul)) / op.n if isinstance(op, Matmul) else 1.0
        for run in runs
        for op in run
    ]


def _shared_input(op: AnyOp) -> tuple[object, ...]:
    if isinstance(op, Matmul) and op.split == "column":
        return op.rows, op.k, op.experts, op.quantisable, op.count
    return (id(op),)


def _boundary(body: list[Block]) -> Floats:
    """Elements that full recompute keeps at each layer, by extent: the mean over the body."""
    layers = sum(block.repeat for block in body) or 1
    total = np.zeros(3)
    for block in body:
        named = [tensor for tensor in block.tensors if tensor.name == block.boundary]
        chosen = (
            named or sorted(block.tensors, key=lambda tensor: -tensor.width * sum(_extent(tensor.rows)))[:1]
        )
        for tensor in chosen:
            total += np.array(_extent(tensor.rows)) * tensor.width * block.repeat / layers
    return total


def _columns(rows: list[tuple[object, ...]], names: tuple[str, ...]) -> Columns:
    """Rows as columns, equal rows merged (their counts added)."""
    merged: dict[tuple[object, ...], float] = {}
    for group, extent, count, *rest in rows:
        flat = tuple(part for value in rest for part in (value if isinstance(value, tuple) else (value,)))
        key = (group, extent, *flat)
        merged[key] = merged.get(key, 0.0) + float(count)  # type: ignore[arg-type]
    keys = list(merged)
    return Columns(
        group=np.array([key[0] for key in keys], dtype=np.int64),
        extents=np.array([key[1] for key in keys], dtype=np.float64).reshape(len(keys), 3),
        count=np.array([merged[key] for key in keys], dtype=np.float64),
        values={
            name: np.array([key[index + 2] for key in keys], dtype=np.float64)
            for index, name in enumerate(names)
        },
    )
