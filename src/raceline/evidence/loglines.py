"""What a line of a training or serving log says: step time, rate, peak memory."""

from __future__ import annotations

import re
from collections.abc import Callable

from raceline.evidence.rows import Measured, Metric

# Largest text that is searched for figures.
LONGEST = 20_000
# Of bounded length and from its first digit on: a log of digits alone must not take the square of its length.
_NUMBER = r"(?<![0-9,.])([0-9][0-9,]{0,19}(?:\.[0-9]{0,20})?(?:[eE][-+]?[0-9]{1,3})?)"
_GIB = {"GiB": 1.0, "GB": 1e9 / 2**30, "MiB": 1.0 / 1024, "MB": 1e6 / 2**30}


class _Pattern:
    """A figure in a log: where it stands, which metric it is, and how it becomes that metric's unit."""

    def __init__(
        self, pattern: str, metric: Metric, change: Callable[[float], float] = lambda value: value
    ) -> None:
        self.pattern, self.metric, self.change = re.compile(pattern), metric, change


# Formats as their projects print them: Megatron-LM training log, transformers' Trainer, tqdm, torchtitan,
# llama.cpp timings, vLLM's benchmark, nvidia-smi.
_PATTERNS = (
    _Pattern(rf"elapsed time per iteration \(ms\):\s*{_NUMBER}", "step_time_s", lambda ms: ms / 1000.0),
    _Pattern(rf"'train_steps_per_second':\s*{_NUMBER}", "step_time_s", lambda rate: 1.0 / rate),
    _Pattern(rf"{_NUMBER}\s*s/it", "step_time_s"),
    _Pattern(rf"{_NUMBER}\s*it/s", "step_time_s", lambda rate: 1.0 / rate),
    _Pattern(rf"\bstep[ _]time[^0-9]{{0,4}}{_NUMBER}\s*s\b", "step_time_s"),
    _Pattern(rf"\btps:\s*{_NUMBER}", "tokens_per_s_per_device"),
    _Pattern(
        rf"(?<!prompt )eval time =[^\n]{{0,200}}?{_NUMBER} tokens per second",
        "tpot_ms",
        lambda rate: 1000.0 / rate,
    ),
    _Pattern(rf"Mean TTFT \(ms\):\s*{_NUMBER}", "ttft_ms"),
    _Pattern(rf"Mean TPOT \(ms\):\s*{_NUMBER}", "tpot_ms"),
)
_MEMORY = (
    (re.compile(rf"\bmemory:\s*{_NUMBER}\s*(GiB|GB|MiB|MB)\b"), "memory_reserved_gib"),
    (re.compile(rf"max allocated:?\s*{_NUMBER}\s*(GiB|GB|MiB|MB)\b"), "memory_allocated_gib"),
    (re.compile(rf"{_NUMBER}\s*(MiB)\s*/\s*[0-9]+\s*MiB"), "memory_device_gib"),
)


def figures(text: str) -> tuple[Measured, ...]:
    """The figures of a log's text; of each metric the last one, since logs end in their steady state."""
    text = text[-LONGEST:]
    found: dict[str, Measured] = {}
    for item in _PATTERNS:
        matches = item.pattern.findall(text)
        value = float(matches[-1].replace(",", "")) if matches else 0.0
        if value > 0 and item.metric not in found:
            found[item.metric] = Measured(item.metric, item.change(value))
    for pattern, metric in _MEMORY:
        pairs = pattern.findall(text)
        if pairs and float(pairs[-1][0].replace(",", "")) > 0:
            size = float(pairs[-1][0].replace(",", "")) * _GIB[pairs[-1][1]]
            found[metric] = Measured(metric, size)  # type: ignore[arg-type]
    return tuple(found.values())
