"""Host memory and disk that a run needs: at load, at each step and at save."""

from __future__ import annotations

from raceline.estimate.choose import Choice, activation_bytes
from raceline.estimate.conventions import bytes_per_element, convention

GIB = 2.0**30
BASE_GIB_PER_RANK = 3.0
ADAM_MASTER_AND_MOMENTS_BYTES = 12.0
# Weights for inference are read shard by shard; hubs cut files at about this size.
SHARD_BYTES = 10e9


def host_memory_gib(choice: Choice, parameters: float, trained: float, offloaded_bytes: float) -> float:
    """GiB of one node's memory at the worst moment.

    At load, weights pass through host memory: once, or once a rank where each rank reads them all.
    While training, offloaded states stay there. At save, whole states are gathered on top of them.
    """
    ranks = min(choice.count, choice.device.per_node)
    stored = parameters * bytes_per_element(choice.weight_precision or "bf16")
    base = BASE_GIB_PER_RANK * ranks * GIB
    per_rank = choice.scenario.setup.loads_on_every_rank
    copies = (
        ranks if (convention(choice.runtime).training.loads_per_rank if per_rank is None else per_rank) else 1
    )
    load = stored * (copies if choice.task == "train" else 1)
    if choice.task != "train":
        return (BASE_GIB_PER_RANK * GIB + min(load, SHARD_BYTES)) / GIB
    in_node = offloaded_bytes * ranks
    saved = trained * activation_bytes(choice)
    if choice.offload != "none":
        saved += trained * ADAM_MASTER_AND_MOMENTS_BYTES * (2 if choice.zero_stage else 1)
    running = in_node + saved
    return (base + max(load, running)) / GIB


def disk_gib(choice: Choice, parameters: float, trained: float, adapters: float) -> float:
    """GiB of disk for the weights and, when training, two checkpoints with optimizer states."""
    stored = parameters * bytes_per_element(choice.weight_precision or "bf16")
    if choice.task != "train":
        return stored / GIB
    checkpoint = trained * (2.0 + ADAM_MASTER_AND_MOMENTS_BYTES) + adapters * 4.0
    return (stored + 2.0 * checkpoint) / GIB
