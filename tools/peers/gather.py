"""Cases from raceline's evidence: rows through its adapters, groups by its rules, shapes from its models."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tools.peers.case import Case, Device, Shape

from raceline import api
from raceline.accuracy.observations import Observation, observe
from raceline.catalog.types import Accelerator
from raceline.estimate import constants
from raceline.estimate.choose import Choice
from raceline.evidence import published
from raceline.models import count, names
from raceline.models.graph import Attention, Block, Matmul, Model
from raceline.present.errors import RacelineError

EVIDENCE = Path(__file__).resolve().parent.parent.parent / "evidence"
TABLES = ("training", "megatron_ci", "serving", "inference", "fit")
# Whose rows a peer needs as published.
WITH_RECORDS = ("serving", "megatron_ci")
GROUPS = (
    "train-dense-16bit", "train-dense-new", "train-moe", "train-finetune", "memory-allocated", "memory-device",
    "fit", "serve-tpot", "serve-ttft",
)  # fmt: skip


def gather(tables: Sequence[str] = TABLES) -> list[Case]:
    """All measured values of the tables that fall in one of the groups."""
    rows = [row for table in tables for row in published.rows(table)]
    found = observe(rows, api.load_catalogue(), cache(api.read_model), constants.load())
    records = {
        name: record for table in tables if table in WITH_RECORDS for name, record in _records(table).items()
    }
    shapes: dict[str, Shape] = {}
    cases = []
    for item in found.items:
        choice = found.prepared.choices[item.at]
        if item.group not in GROUPS or choice is None:
            continue
        reference = choice.scenario.model
        if reference not in shapes:
            shapes[reference] = _shape(reference, choice.model)
        cases.append(_case(item, choice, shapes[reference], records.get(item.row.id)))
    return cases


def _records(table: str) -> dict[str, dict[str, Any]]:
    with (EVIDENCE / f"{table}.csv").open(encoding="utf-8", newline="") as file:
        return {record["id"]: {k: v for k, v in record.items() if v} for record in csv.DictReader(file)}


def _case(item: Observation, choice: Choice, shape: Shape, record: dict[str, Any] | None) -> Case:
    scenario = item.row.scenario or {}
    workload = dict(scenario.get("workload", {}))
    if choice.seq_len:
        workload.setdefault("seq_len", choice.seq_len)
    return Case(
        id=item.row.id,
        group=item.group,
        metric=item.metric,
        measured=item.measured,
        model=scenario["model"],
        shape=shape,
        device=_device(choice.device.accelerator),
        count=choice.count,
        per_node=int(scenario["hardware"].get("per_node") or min(choice.count, 8)),
        accelerator=choice.device.accelerator.id,
        workload=workload,
        setup=dict(scenario.get("setup", {})),
        record=record,
    )


def _device(accelerator: Accelerator) -> Device:
    return Device(
        memory_gib=accelerator.memory_gib or 0.0,
        memory_gbs=accelerator.memory_bw_gbs,
        link_gbs=accelerator.intra_link_gbs_per_dir,
        tflops_16bit=accelerator.bf16_dense_tflops or accelerator.fp16_dense_tflops,
        tflops_8bit=accelerator.fp8_dense_tflops or accelerator.int8_dense_tops,
        tflops_4bit=accelerator.fp4_dense_tflops,
    )


def _shape(reference: str, model: Model) -> Shape:
    layers = [block for block in model.blocks if block.role == "body"]
    main = max(layers, key=_weight) if layers else None
    has_sizes = main is not None and model.unit == "token"
    return Shape(
        parameters=int(count.parameters(model)),
        largest_layer_parameters=max(
            (
                count.op_parameters(op) // getattr(op, "experts", 1)
                for block in model.blocks
                for op in block.ops
            ),
            default=0,
        ),
        layers=model.layers,
        hidden=model.hidden,
        vocabulary=model.vocabulary,
        is_decoder=model.unit == "token" and model.objective == "causal",
        config=_config(reference),
        experts=max(_weight(block)[1] for block in model.blocks),
        **(_layer_sizes(main, model.hidden) if has_sizes and main else {}),
    )


def _weight(layer: Block) -> tuple[int, int]:
    return layer.repeat, max((op.experts for op in layer.ops if isinstance(op, Matmul)), default=1)


def _layer_sizes(layer: Block, hidden: int) -> dict[str, Any]:
    """Heads, feed-forward width and experts of the layer that repeats most."""
    at = next((index for index, op in enumerate(layer.ops) if isinstance(op, Attention)), None)
    if at is None:
        return {}
    attention = layer.ops[at]
    rest = [op for op in layer.ops[at:] if isinstance(op, Matmul)]
    experts = max((op.experts for op in rest), default=1)
    inner = [op for op in rest if op.experts == experts]
    down = next((op for op in reversed(inner) if op.n == hidden), None)
    if down is None or not isinstance(attention, Attention):
        return {}
    entering = sum(op.n for op in inner if op.k == hidden and op.n in (down.k, 2 * down.k))
    return {
        "heads": attention.heads,
        "kv_heads": attention.kv_heads,
        "ffn": down.k,
        "is_gated": entering >= 2 * down.k,
        "experts_per_token": max(1, round(down.experts_per_token)),
    }


def _config(reference: str) -> dict[str, Any] | None:
    try:
        return names.find(reference).config
    except RacelineError:
        return None
