"""Calibration: factors on the physics, fitted on measured runs, as a value that `estimate` takes.

A factor belongs to a *kind* of work (matmuls, attention, collectives, kept activations, …) within a
*scope* (a task, a hardware generation, a runtime, …). The factors of all scopes that a run lies in
are multiplied: each scope says how it differs from the one above it, and is shrunk to 1 where few
runs speak for it. A run in scopes that nobody measured is left with the wider ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

import msgspec
import numpy as np
from numpy.typing import NDArray

from raceline.catalog.types import Accelerator
from raceline.estimate.conventions import known_runtime
from raceline.models.graph import Attention, Convolution, Matmul, Model

Floats = NDArray[np.float64]

TIME_KINDS = (
    "matmul", "convolution", "attention", "traffic", "weights", "cache", "loss", "collective", "update", "host",
)  # fmt: skip
MEMORY_KINDS = ("kept", "logits", "working", "reserve")
KINDS = (*TIME_KINDS, *MEMORY_KINDS)
(MATMUL, CONVOLUTION, ATTENTION, TRAFFIC, WEIGHTS, CACHE, LOSS, COLLECTIVE, UPDATE, HOST, KEPT, LOGITS, WORKING,
 RESERVE) = range(len(KINDS))  # fmt: skip
# A constant on `all` counts for every kind of time.
ALL = "all"
LARGEST_LOG_FACTOR = 2.0


class Keys(msgspec.Struct, frozen=True, kw_only=True):
    """What decides which factors a run takes. `numbers`: the number format of the arithmetic and,
    where the weights are stored narrower, theirs."""

    task: str
    model_class: str
    generation: str
    accelerator: str
    runtime: str
    numbers: str
    method: str = ""
    is_fused: bool = False
    is_edge: bool = False


NO_KEYS = Keys(task="", model_class="", generation="", accelerator="", runtime="", numbers="")


_EDGE_TIERS = ("edge", "mobile")


def keys_on(
    accelerator: Accelerator, runtime: str, numbers: str, is_fused: bool, task: str, model_class: str, method: str
) -> Keys:  # fmt: skip
    """The keys of a run on an accelerator; `numbers`: see `number_word`."""
    return Keys(
        task=task,
        model_class=model_class,
        generation=accelerator.architecture or accelerator.vendor,
        accelerator=accelerator.id,
        runtime=known_runtime(runtime, task == "train"),
        numbers=numbers,
        method=method,
        is_fused=is_fused,
        is_edge=accelerator.tier in _EDGE_TIERS,
    )


@cache
def scopes(keys: Keys) -> tuple[str, ...]:
    """The scopes that a run lies in, the widest first, each as kind=name."""
    area = area_of(keys)
    family = f"{area}/{keys.model_class}"
    found = [
        f"area={area}",
        f"kernels={area}/{'fused' if keys.is_fused else 'eager'}",
        f"class={family}",
        f"generation={area}/{keys.generation}",
        f"numbers={area}/{keys.numbers}",
        f"generation+numbers={area}/{keys.generation}/{keys.numbers}",
        f"generation+class={family}/{keys.generation}",
        f"runtime={area}/{keys.runtime}",
        f"runtime+class={family}/{keys.runtime}",
        f"generation+runtime={area}/{keys.generation}/{keys.runtime}",
        f"accelerator={area}/{keys.accelerator}",
    ]
    if keys.method in ("lora", "qlora", "full"):
        found.append(f"method={area}/{keys.method}")
    return (*found, *own_scopes(keys))


@cache
def area_of(keys: Keys) -> str:
    """The task and the kind of models whose factors are learned together: what one area's kernels cost
    says little about another's."""
    if keys.is_edge:
        return f"{keys.task}/edge"
    if keys.model_class in ("dense", "moe", "seq2seq"):
        return f"{keys.task}/text"
    is_image = keys.model_class in ("cnn", "vit", "detection")
    return f"{keys.task}/{'image' if is_image else keys.model_class}"


@cache
def own_scopes(keys: Keys) -> tuple[str, str]:
    """The scopes of a user's own runs: the accelerator, and such a model with such a runtime on it."""
    task = f"own={keys.accelerator}/{keys.task}"
    return task, f"{task}/{keys.model_class}/{keys.runtime}"


@dataclass(frozen=True)
class Calibration:
    """Log factors by scope (arrays over KINDS). Without any, physics stands as it is."""

    by_scope: Mapping[str, Floats] = field(default_factory=dict)
    _cached: dict[Keys, tuple[float, ...]] = field(default_factory=dict, repr=False, compare=False)

    def scale(self, keys: Keys) -> tuple[float, ...]:
        """The factors of a run, one for each of KINDS."""
        found = self._cached.get(keys)
        if found is None:
            logs = sum(
                (self.by_scope[name] for name in scopes(keys) if name in self.by_scope), np.zeros(len(KINDS))
            )
            found = tuple(np.exp(np.clip(logs, -LARGEST_LOG_FACTOR, LARGEST_LOG_FACTOR)).tolist())
            self._cached[keys] = found
        return found


NONE = Calibration()
UNSCALED: tuple[float, ...] = (1.0,) * len(KINDS)


def of_constants(constants: Mapping[str, Mapping[str, float]]) -> Calibration:
    """A calibration from constants by scope and kind; `all` counts for each kind of time."""
    by_scope: dict[str, Floats] = {}
    for scope, values in constants.items():
        logs = np.zeros(len(KINDS))
        for kind, value in values.items():
            if kind == ALL:
                logs[: len(TIME_KINDS)] += value
            else:
                logs[KINDS.index(kind)] += value
        by_scope[scope] = logs
    return Calibration(by_scope)


def unscaled(rows: int) -> Floats:
    """Factors that change nothing, for `rows` rows."""
    return np.ones((rows, len(KINDS)))


def columns(scales: Iterable[tuple[float, ...]]) -> Floats:
    """Rows x KINDS of the factors of several runs."""
    return np.array(list(scales), dtype=np.float64).reshape(-1, len(KINDS))


def number_word(number_format: str, weight_bytes: float) -> str:
    """The arithmetic's format class, with the weights' width where they are stored narrower."""
    word = {"fp32": "32bit", "tf32": "32bit", "fp8": "8bit", "int8": "8bit", "fp4": "4bit"}.get(
        number_format, "16bit"
    )
    wide = {"32bit": 4.0, "16bit": 2.0, "8bit": 1.0, "4bit": 0.5}[word]
    if weight_bytes > wide * 0.75:
        return word
    return f"{word}/w4" if weight_bytes < 0.75 else f"{word}/w8"


def model_class(model: Model) -> str:
    """The class whose factors a model takes: how its time is made up."""
    ops = [op for block in model.blocks for op in block.ops]
    if any(isinstance(op, Matmul) and op.experts > 1 for op in ops) and model.unit == "token":
        return "moe"
    if model.objective in ("detect", "denoise", "rank", "contrastive"):
        return {"detect": "detection", "denoise": "diffusion", "rank": "recommender"}.get(
            model.objective, "two towers"
        )
    if model.unit == "token":
        return {"causal": "dense", "seq2seq": "seq2seq"}.get(model.objective, "encoder")
    if model.unit == "sample":
        return "speech"
    if model.family.startswith("stylegan"):
        return "gan"
    has_attention = any(isinstance(op, Attention) for op in ops)
    has_convolution = any(isinstance(op, Convolution) and op.k * op.groups > 1 for op in ops)
    return "vit" if has_attention else "cnn" if has_convolution else "other"
