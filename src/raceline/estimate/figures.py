"""Bare figures of many scenarios under many calibrations: what fitting and scoring need.

`prepare` reads, chooses and arranges once; `Prepared.figures` evaluates again under other factors.
The figures are those that `estimate` reports as mid values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from raceline.estimate import infer, train
from raceline.estimate.calibration import KINDS, Keys
from raceline.estimate.choose import Choice
from raceline.estimate.configs import Configs, Layouts
from raceline.estimate.constants import Efficiency
from raceline.estimate.devices import Device, Devices, arrange
from raceline.estimate.hardware import Catalogue
from raceline.estimate.latency import serving_time
from raceline.estimate.layout import ModelTable
from raceline.estimate.memory import GIB
from raceline.estimate.op_time import Shapes
from raceline.estimate.run import Read, Session, table_key, table_of
from raceline.estimate.serving import Serving, serving_memory
from raceline.present.errors import RacelineError

Floats = NDArray[np.float64]
METRICS = (
    "tokens_per_s_per_device", "samples_per_s_per_device", "step_time_s", "batch_ms", "ttft_ms", "tpot_ms",
    "answer_ms", "memory_allocated_gib", "memory_last_allocated_gib", "memory_reserved_gib", "memory_device_gib",
    "needed_gib", "limit_gib",
)  # fmt: skip
_AT = {name: index for index, name in enumerate(METRICS)}


@dataclass(frozen=True, slots=True)
class _Training:
    """Training scenarios of one model as arrays."""

    index: NDArray[np.int64]
    choices: list[Choice]
    table: ModelTable
    devices: Devices
    device_of: list[int]
    rows: train.Rows
    configs: Configs
    layouts: Layouts
    shapes: Shapes
    reading: Floats

    def repeated(self, times: int) -> _Training:
        """The same scenarios, `times` times one after the other."""
        count, rows = len(self.choices), len(self.rows)
        owners = np.repeat(np.arange(times) * count, rows)
        return replace(
            self,
            choices=self.choices * times,
            device_of=self.device_of * times,
            rows=train.Rows(
                (np.tile(self.rows.owner, times) + owners).tolist(),
                self.rows.micro_batch * times,
                self.rows.recompute * times,
            ),
            configs=Configs(
                np.arange(times * rows),
                np.tile(self.configs.layout, times) + owners,
                np.tile(self.configs.accumulation, times),
                np.tile(self.configs.recompute, times),
            ),
            layouts=self.layouts.take(np.tile(np.arange(count), times)),
            shapes=self.shapes.take(np.tile(np.arange(rows), times)),
            reading=np.tile(self.reading, times),
        )

    def figures(self, scale: Floats, efficiency: Efficiency) -> Floats:
        """Choices x METRICS under `scale` (choices x KINDS)."""
        layouts = replace(self.layouts, scale=scale)
        shapes = replace(self.shapes, scale=scale[self.configs.layout])
        with np.errstate(divide="ignore", invalid="ignore"):
            usual = train.usual_shapes(self.choices, self.rows, shapes)
            done = train.evaluate(
                self.table, self.configs, layouts, shapes, self.devices, efficiency, self.reading, usual
            )
        surely_fits = efficiency.spread.surely_fits
        row = np.array(train.pick(self.rows, done, self.choices, self.devices.memory_bytes, surely_fits))
        step_s = done.time.total[row]
        samples = np.array(self.rows.micro_batch)[row] * done.configs.accumulation[row] * self.layouts.dp
        rate = samples / step_s / np.array([choice.count for choice in self.choices])
        tokens = np.array([c.usual_len if c.model.unit == "token" else np.nan for c in self.choices])
        found = np.full((len(row), len(METRICS)), np.nan)
        found[:, _AT["samples_per_s_per_device"]] = rate
        found[:, _AT["tokens_per_s_per_device"]] = rate * tokens
        found[:, _AT["step_time_s"]] = step_s
        memory, limits = done.memory, self.devices.memory_bytes[self.layouts.device[self.configs.layout]]
        found[:, _AT["memory_device_gib"]] = memory.shown(limits)[row] / GIB
        found[:, _AT["needed_gib"]] = memory.needed[row] / GIB
        found[:, _AT["memory_allocated_gib"]] = (memory.total - memory.reserved)[row] / GIB
        found[:, _AT["memory_last_allocated_gib"]] = memory.last_allocated[row] / GIB
        found[:, _AT["memory_reserved_gib"]] = (memory.shown(limits) - memory.outside)[row] / GIB
        found[:, _AT["limit_gib"]] = self.devices.memory_bytes[self.device_of] / GIB
        return found


@dataclass(frozen=True, slots=True)
class _Inference:
    """Inference scenarios of one model as arrays."""

    index: NDArray[np.int64]
    table: ModelTable
    devices: Devices
    serving: Serving

    def repeated(self, times: int) -> _Inference:
        """The same scenarios, `times` times one after the other."""
        return replace(self, serving=self.serving.take(np.tile(np.arange(len(self.serving)), times)))

    def figures(self, scale: Floats, efficiency: Efficiency) -> Floats:
        """Choices x METRICS under `scale` (choices x KINDS)."""
        serving = replace(self.serving, scale=scale)
        with np.errstate(divide="ignore", invalid="ignore"):
            memory = serving_memory(self.table, serving, self.devices, efficiency)
            time = serving_time(self.table, serving, memory, self.devices, efficiency)
        found = np.full((len(serving), len(METRICS)), np.nan)
        found[:, _AT["samples_per_s_per_device"]] = time.samples_per_s_per_device
        found[:, _AT["tokens_per_s_per_device"]] = time.tokens_per_s_per_device
        found[:, _AT["step_time_s"]] = time.step_s
        found[:, _AT["batch_ms"]] = time.batch_s * 1e3
        found[:, _AT["ttft_ms"]] = time.ttft_s * 1e3
        found[:, _AT["tpot_ms"]] = time.tpot_s * 1e3
        answer_s = time.ttft_s + time.tpot_s * np.maximum(serving.output_len - 1.0, 0.0)
        found[:, _AT["answer_ms"]] = answer_s * 1e3
        found[:, _AT["memory_device_gib"]] = memory.total / GIB
        found[:, _AT["needed_gib"]] = memory.total / GIB
        found[:, _AT["memory_allocated_gib"]] = (memory.total - memory.reserved) / GIB
        found[:, _AT["memory_reserved_gib"]] = (memory.total - memory.reserved) / GIB
        share = np.where(serving.engine_fraction > 0, serving.engine_fraction, 1.0)
        found[:, _AT["limit_gib"]] = self.devices.memory_bytes[serving.device] * share / GIB
        return found


@dataclass(frozen=True)
class Prepared:
    """Scenarios ready to be evaluated. `errors`: why some of them can't be, by index; `keys`: what
    decides each one's factors (None for those)."""

    count: int
    groups: Sequence[_Training | _Inference]
    errors: Mapping[int, RacelineError]
    keys: Sequence[Keys | None]
    choices: Sequence[Choice | None]
    efficiency: Efficiency

    def figures(self, scale: Floats) -> Floats:
        """Scenarios x METRICS under `scale` (scenarios x KINDS); NaN where there is no such figure."""
        return np.asarray(self.figures_of([scale])[0])

    def figures_of(self, scales: Sequence[Floats]) -> Floats:
        """Several `figures` at once: scales x scenarios x METRICS. Models with few scenarios take little longer
        than for one."""
        found = np.full((len(scales), self.count, len(METRICS)), np.nan)
        for group in self.groups:
            scale = np.concatenate([one[group.index] for one in scales])
            figures = group.repeated(len(scales)).figures(scale, self.efficiency)
            found[:, group.index] = figures.reshape(len(scales), len(group.index), -1)
        return found

    def unscaled(self) -> Floats:
        """Factors that change nothing."""
        return np.ones((self.count, len(KINDS)))


def prepare(
    scenarios: Sequence[Mapping[str, Any]], catalogue: Catalogue, read: Read, efficiency: Efficiency
) -> Prepared:
    """Read, choose and arrange scenarios; one that can't be estimated leaves its error."""
    session = Session(catalogue, read, efficiency)
    errors: dict[int, RacelineError] = {}
    keys: list[Keys | None] = [None] * len(scenarios)
    choices: list[Choice | None] = [None] * len(scenarios)
    members: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, scenario in enumerate(scenarios):
        try:
            choice = session.choice(scenario)
        except RacelineError as error:
            errors[index] = error
            continue
        choices[index], keys[index] = choice, choice.keys
        members[table_key(choice)].append(index)
    groups: list[_Training | _Inference] = []
    for group in members.values():
        try:
            groups.append(_arranged([c for i in group if (c := choices[i]) is not None], group, efficiency))
        except RacelineError as error:
            errors.update(dict.fromkeys(group, error))
    return Prepared(len(scenarios), groups, errors, keys, choices, efficiency)


def _arranged(choices: list[Choice], index: list[int], efficiency: Efficiency) -> _Training | _Inference:
    table = table_of(choices[0])
    index_of: dict[Device, int] = {}
    device_of = [index_of.setdefault(choice.device, len(index_of)) for choice in choices]
    devices = arrange(list(index_of), efficiency)
    at = np.array(index, dtype=np.int64)
    if choices[0].task == "infer":
        return _Inference(at, table, devices, infer.arrays(choices, device_of, efficiency))
    rows = train.spread(choices)
    configs, layouts, shapes = train.arrays(choices, rows, device_of)
    reading = train.input_seconds(choices, rows, configs)
    return _Training(at, choices, table, devices, device_of, rows, configs, layouts, shapes, reading)
