"""The measured runs beside an estimate, and what would narrow its range most."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from raceline.estimate.calibration import Keys
from raceline.estimate.choose import Choice
from raceline.estimate.result import Estimate, Neighbour
from raceline.estimate.spread import Spread, tier
from raceline.evidence.neighbours import Features, Found, Neighbours
from raceline.present.errors import Message, message

MOST = 3
# What is shown of each task: speed first, then memory.
_SPEED = {
    "train": ("tokens_per_s_per_device", "samples_per_s_per_device", "step_time_s"),
    "infer": ("tpot_ms", "ttft_ms", "batch_ms", "tokens_per_s_per_device", "samples_per_s_per_device"),
}
_MEMORY = ("memory_device_gib", "memory_allocated_gib")
_ASKED = {"train": ((_SPEED["train"], MOST), (_MEMORY, 1)), "infer": ((_SPEED["infer"], MOST),)}
UNITS = {
    "tokens_per_s_per_device": "tokens/s per device",
    "samples_per_s_per_device": "samples/s per device",
    "step_time_s": "s",
    "batch_ms": "ms",
    "ttft_ms": "ms",
    "tpot_ms": "ms",
    "answer_ms": "ms",
    "memory_allocated_gib": "GiB",
    "memory_reserved_gib": "GiB",
    "memory_device_gib": "GiB",
}


def features_of(choice: Choice, parameters: float, batch: float) -> Features:
    """What decides how near a measured run is. `batch`: samples or sequences on one device at once."""
    keys = choice.keys
    is_text = choice.model.unit == "token"
    length = choice.seq_len if keys.task == "train" else choice.input_len + choice.output_len
    return Features(
        task=keys.task,
        model_class=keys.model_class,
        generation=keys.generation,
        accelerator=keys.accelerator,
        runtime=keys.runtime,
        numbers=keys.numbers,
        method=keys.method,
        parameters=parameters,
        length=float(length if is_text else choice.model.image_size or 1),
        batch=batch,
        devices=float(choice.count),
    )


def with_neighbours(
    estimates: Sequence[Estimate], choices: Sequence[Choice], parameters: float, known: Neighbours, spread: Spread
) -> list[Estimate]:  # fmt: skip
    """Estimates of one model and task with their nearest measured runs and what would narrow their ranges."""
    wanted = [
        features_of(choice, parameters, batch_of(estimate, choice))
        for estimate, choice in zip(estimates, choices, strict=True)
    ]
    nearest = known.nearest_of_each(wanted, _ASKED[choices[0].task])
    return [
        msgspec.structs.replace(
            estimate,
            evidence=tuple(_neighbour(item) for item in found),
            narrows=narrows(choice.keys, spread),
        )
        for estimate, choice, found in zip(estimates, choices, nearest, strict=True)
    ]


def _neighbour(item: Found) -> Neighbour:
    return Neighbour(
        id=item.id, metric=item.metric, measured=item.measured, unit=UNITS[item.metric],
        distance=item.distance, source_url=item.source_url,
    )  # fmt: skip


def batch_of(estimate: Estimate, choice: Choice) -> float:
    """Samples or sequences on one device at once."""
    if choice.task == "infer":
        return float(choice.concurrency)
    return float(choice.scenario.setup.micro_batch or estimate.chosen.get("micro_batch", 1))


def narrows(keys: Keys, spread: Spread) -> Message:
    """What would narrow the range most: a run of such a model there, or the user's own run."""
    place = tier(keys, spread.counts)
    name = ("estimate.narrow_own", "estimate.narrow_device", "estimate.narrow_any")[place]
    return message(name, model_class=keys.model_class, accelerator=keys.accelerator, runtime=keys.runtime)
