"""The smallest change of a setup that makes it fit: single changes, tried from harmless to costly."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from raceline.estimate.choose import LOSS_CHUNKS, Choice
from raceline.present.errors import Message, message

PeakBytes = Callable[[list[Choice], list[int]], list[float]]


def training_changes(choice: Choice) -> list[tuple[str, Choice]]:
    """Changes of a training setup that lower its peak, each with the words that name it."""
    change = msgspec.structs.replace
    changes: list[tuple[str, Choice]] = []
    if not choice.fused_loss and choice.model.vocabulary:
        changes.append(
            ("fused_loss=true", change(choice, fused_loss=True, logit_bytes=choice.logit_bytes / LOSS_CHUNKS))
        )
    if choice.zero_stage < 3 and choice.dp * choice.cp > 1 and choice.pp == 1:
        ranks = choice.dp * choice.cp
        changes.append(("zero_stage=3", change(choice, zero_stage=3, zero_group=ranks)))
    if "full" not in choice.recomputes:
        changes.append(("recompute=full", change(choice, recomputes=("full",))))
    if choice.micro_batches[0] > 1:
        changes.append(("micro_batch=1", change(choice, micro_batches=(1,))))
    if choice.optimizer.startswith("adamw") and "8bit" not in choice.optimizer:
        changes.append(("optimizer=adamw-8bit", change(choice, optimizer="adamw-8bit")))
    if choice.offload == "none":
        changes.append(("offload=optimizer", change(choice, offload="optimizer")))
        changes.append(("offload=all", change(choice, offload="all", recomputes=("full",))))
    return changes


def serving_changes(choice: Choice) -> list[tuple[str, Choice]]:
    """Changes of a serving setup that lower what it holds."""
    change = msgspec.structs.replace
    changes: list[tuple[str, Choice]] = []
    if choice.concurrency > 1:
        half = choice.concurrency // 2
        changes.append((f"concurrency={half}", change(choice, concurrency=half)))
        changes.append(("concurrency=1", change(choice, concurrency=1)))
    if choice.kv_precision in ("bf16", "fp16"):
        changes.append(("kv_precision=fp8", change(choice, kv_precision="fp8")))
    if choice.weight_precision in ("bf16", "fp16", "fp32"):
        changes.append(("weight_precision=int8", change(choice, weight_precision="int8")))
        changes.append(("weight_precision=awq-int4", change(choice, weight_precision="awq-int4")))
    return changes


def remedies(
    choices: Sequence[Choice],
    device_of: Sequence[int],
    limits: Sequence[float],
    peaks: PeakBytes,
    surely_fits: float,
) -> list[Message]:
    """For each choice that doesn't fit its limit, the first single change that does, or that none does.
    `surely_fits`: the share of a limit that may be needed."""
    tried: list[Choice] = []
    owners: list[int] = []
    names: list[str] = []
    for index, choice in enumerate(choices):
        changes = training_changes if choice.task == "train" else serving_changes
        for name, changed in changes(choice):
            tried.append(changed)
            owners.append(index)
            names.append(name)
    needed = peaks(tried, [device_of[owner] for owner in owners]) if tried else []
    found: dict[int, Message] = {}
    for owner, name, peak in zip(owners, names, needed, strict=True):
        if owner not in found and peak <= limits[owner] * surely_fits:
            found[owner] = message(
                "estimate.remedy", change=name, needed_gib=peak / 2**30, limit_gib=limits[owner] / 2**30
            )
    return [found.get(index, message("estimate.no_remedy")) for index in range(len(choices))]
