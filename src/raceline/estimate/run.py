"""From scenarios to estimates: read and choose, evaluate each model's scenarios as arrays, report."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from raceline.catalog.prices import Price
from raceline.estimate import constants, infer, train
from raceline.estimate.basis import basis
from raceline.estimate.calibration import NONE, Calibration, Keys, keys_on, model_class, number_word
from raceline.estimate.choose import Choice, choose
from raceline.estimate.configs import RECOMPUTE
from raceline.estimate.constants import Efficiency
from raceline.estimate.conventions import bytes_per_element
from raceline.estimate.devices import Device, Devices, arrange
from raceline.estimate.hardware import Catalogue, device_for
from raceline.estimate.latency import serving_time
from raceline.estimate.layout import ModelTable, tabulate
from raceline.estimate.memory import GIB, states_off_device
from raceline.estimate.neighbourhood import with_neighbours
from raceline.estimate.remedy import PeakBytes, remedies
from raceline.estimate.report import served, trained
from raceline.estimate.result import Estimate, Fact
from raceline.estimate.scenario import Hardware, Scenario, parse
from raceline.estimate.serving import serving_memory
from raceline.evidence.neighbours import Neighbours
from raceline.models import count
from raceline.models.graph import Model
from raceline.present.errors import InputError, Message, RacelineError

Read = Callable[[str, int | None], Model]
Outcome = Estimate | RacelineError
_MEMORY_WARNINGS = ("estimate.exceeds_memory", "estimate.tight_memory")


def estimate_one(scenario: Scenario | Mapping[str, Any], catalogue: Catalogue, read: Read,
                 efficiency: Efficiency | None = None, neighbours: Neighbours | None = None) -> Estimate:  # fmt: skip
    """The estimate of one scenario; raises InputError where it can't be made."""
    outcome = estimate_many([scenario], catalogue, read, efficiency, neighbours=neighbours)[0]
    if isinstance(outcome, RacelineError):
        raise outcome
    return outcome


def estimate_many(
    scenarios: Sequence[Scenario | Mapping[str, Any] | RacelineError], catalogue: Catalogue, read: Read,
    efficiency: Efficiency | None = None, calibrations: Sequence[Calibration] | None = None,
    neighbours: Neighbours | None = None,
) -> list[Outcome]:  # fmt: skip
    """Estimates in the order of the scenarios; an error stands in the place of one that failed.
    `calibrations`: one for each scenario, where they differ; `neighbours`: measured runs to name."""
    session = Session(catalogue, read, efficiency or constants.load())
    shared = session.efficiency.calibration
    outcomes: list[Outcome | None] = [None] * len(scenarios)
    groups: dict[tuple[Any, ...], list[tuple[int, Choice]]] = defaultdict(list)
    for index, scenario in enumerate(scenarios):
        try:
            choice = session.choice(scenario, calibrations[index] if calibrations else shared)
        except RacelineError as error:
            outcomes[index] = error
            continue
        groups[table_key(choice)].append((index, choice))
    for members in groups.values():
        choices = [choice for _, choice in members]
        try:
            made = session.evaluate(choices)
            found: Sequence[Outcome] = session.beside(made, choices, neighbours) if neighbours else made
        except RacelineError as error:
            found = [error] * len(choices)
        for (index, _), outcome in zip(members, found, strict=True):
            outcomes[index] = outcome
    return [outcome for outcome in outcomes if outcome is not None]


def table_of(choice: Choice) -> ModelTable:
    """The model's ops as columns; raises InputError where adapters have nothing to adapt."""
    setup, components = choice.scenario.setup, choice.scenario.workload.components
    table = tabulate(choice.model, choice.method, setup.lora_rank, choice.lora_targets, components)
    if choice.method in ("lora", "qlora") and not table.adapters.any():
        raise InputError(
            "estimate.no_targets",
            field="setup.lora_targets",
            given=", ".join(choice.lora_targets or ("all",)),
        )
    return table


def keys_of(choice: Choice, class_of_model: str) -> Keys:
    """What decides which factors of the calibration a choice takes."""
    stored = bytes_per_element(choice.weight_precision or choice.precision)
    numbers = number_word(choice.number_format, stored)
    accelerator, method = choice.device.accelerator, choice.method or ""
    return keys_on(accelerator, choice.runtime, numbers, choice.is_fused, choice.task, class_of_model, method)


def table_key(choice: Choice) -> tuple[Any, ...]:
    """What scenarios that are evaluated together have in common."""
    workload, setup = choice.scenario.workload, choice.scenario.setup
    return (
        choice.scenario.model, workload.image_size, workload.components, choice.task, choice.method,
        setup.lora_rank, choice.lora_targets,
    )  # fmt: skip


class Session:
    """Models and devices seen so far, so that many scenarios read each once."""

    def __init__(self, catalogue: Catalogue, read: Read, efficiency: Efficiency) -> None:
        self.catalogue, self.read, self.efficiency = catalogue, read, efficiency
        self.models: dict[tuple[str, int | None], Model | RacelineError] = {}
        self.parameters: dict[str, float] = {}
        self.active: dict[str, float] = {}
        self.classes: dict[str, str] = {}
        self.facts: dict[tuple[Device, str], tuple[Fact, ...]] = {}
        self.devices: dict[Hardware, tuple[Device, tuple[Message, ...]]] = {}
        self.prices: dict[Hardware, Price | None] = {}

    def choice(
        self,
        scenario: Scenario | Mapping[str, Any] | RacelineError,
        calibration: Calibration = NONE,
    ) -> Choice:
        """The scenario in full, with the calibration's factors; raises where it can't be estimated."""
        if isinstance(scenario, RacelineError):
            raise scenario
        whole = scenario if isinstance(scenario, Scenario) else parse(scenario)
        model = self._model(whole.model, whole.workload.image_size)
        hardware = whole.hardware
        if hardware not in self.devices:
            self.devices[hardware] = device_for(hardware, self.catalogue)
            accelerator = self.devices[hardware][0].accelerator
            self.prices[hardware] = self.catalogue.price_hour_usd(hardware, accelerator)
        device, notes = self.devices[hardware]
        choice = choose(whole, model, device, notes, self._parameters(whole.model, model))
        keys = self.keys(choice)
        return msgspec.structs.replace(choice, keys=keys, scale=calibration.scale(keys))

    def keys(self, choice: Choice) -> Keys:
        """What decides which factors a choice takes."""
        reference = choice.scenario.model
        if reference not in self.classes:
            self.classes[reference] = model_class(choice.model)
        return keys_of(choice, self.classes[reference])

    def beside(
        self, estimates: Sequence[Estimate], choices: Sequence[Choice], neighbours: Neighbours
    ) -> Sequence[Estimate]:
        """Estimates of one model with their nearest measured runs."""
        reference = choices[0].scenario.model
        if reference not in self.active:
            self.active[reference] = float(count.parameters_active(choices[0].model))
        spread = self.efficiency.spread
        return with_neighbours(estimates, choices, self.active[reference], neighbours, spread)

    def _facts(self, choice: Choice) -> tuple[Fact, ...]:
        key = (choice.device, choice.number_format)
        if key not in self.facts:
            self.facts[key] = basis(choice.device, choice.number_format, self.efficiency)
        return self.facts[key]

    def _parameters(self, reference: str, model: Model) -> float:
        if reference not in self.parameters:
            self.parameters[reference] = float(count.parameters(model))
        return self.parameters[reference]

    def _model(self, reference: str, image_size: int | None) -> Model:
        key = (reference, image_size)
        if key not in self.models:
            try:
                self.models[key] = self.read(reference, image_size)
            except RacelineError as error:
                error.field = error.field or "model"
                self.models[key] = error
        model = self.models[key]
        if isinstance(model, RacelineError):
            raise model
        return model

    def evaluate(self, choices: list[Choice]) -> list[Estimate]:
        """Estimates of scenarios that have a table in common."""
        first = choices[0]
        table = table_of(first)
        index_of: dict[Device, int] = {}
        device_of = [index_of.setdefault(choice.device, len(index_of)) for choice in choices]
        devices = arrange(list(index_of), self.efficiency)
        run = self._train if first.task == "train" else self._infer
        return run(choices, table, device_of, devices)

    def _train(
        self, choices: list[Choice], table: ModelTable, device_of: list[int], devices: Devices
    ) -> list[Estimate]:
        rows = train.spread(choices)
        configs, layouts, shapes = train.arrays(choices, rows, device_of)
        reading = train.input_seconds(choices, rows, configs)
        usual = train.usual_shapes(choices, rows, shapes)
        done = train.evaluate(table, configs, layouts, shapes, devices, self.efficiency, reading, usual)
        offloaded = states_off_device(table, layouts)
        picked = train.pick(rows, done, choices, devices.memory_bytes, self.efficiency.spread.surely_fits)
        estimates = [
            trained(
                choice, done, row, rows.micro_batch[row], RECOMPUTE[int(done.configs.recompute[row])], table,
                float(devices.memory_bytes[device]), float(offloaded[owner]),
                self.prices[choice.scenario.hardware], self.efficiency, self._facts(choice),
            )
            for owner, (choice, row, device) in enumerate(zip(choices, picked, device_of, strict=True))
        ]  # fmt: skip

        def peaks(changed: list[Choice], on: list[int]) -> list[float]:
            spread = train.spread(changed)
            found = train.evaluate(table, *train.arrays(changed, spread, on), devices, self.efficiency)
            best = train.pick(
                spread, found, changed, devices.memory_bytes, self.efficiency.spread.surely_fits
            )
            return [float(found.memory.needed[row]) for row in best]

        return self._with_remedies(estimates, choices, device_of, peaks)

    def _infer(
        self, choices: list[Choice], table: ModelTable, device_of: list[int], devices: Devices
    ) -> list[Estimate]:
        serving = infer.arrays(choices, device_of, self.efficiency)
        with np.errstate(divide="ignore", invalid="ignore"):
            memory = serving_memory(table, serving, devices, self.efficiency)
            time = serving_time(table, serving, memory, devices, self.efficiency)
        estimates = [
            served(
                choice, serving, memory, time, row, table, float(devices.memory_bytes[device]),
                self.prices[choice.scenario.hardware], self.efficiency, self._facts(choice),
            )
            for row, (choice, device) in enumerate(zip(choices, device_of, strict=True))
        ]  # fmt: skip

        def peaks(changed: list[Choice], on: list[int]) -> list[float]:
            found = serving_memory(
                table, infer.arrays(changed, on, self.efficiency), devices, self.efficiency
            )
            return [float(total) for total in found.total]

        return self._with_remedies(estimates, choices, device_of, peaks)

    def _with_remedies(
        self, estimates: list[Estimate], choices: list[Choice], device_of: list[int], peaks: PeakBytes
    ) -> list[Estimate]:
        """Add the smallest change that fits to each estimate whose accelerator's memory is the limit."""
        short = [
            index
            for index, estimate in enumerate(estimates)
            if any(warning.id in _MEMORY_WARNINGS for warning in estimate.warnings)
        ]
        if not short:
            return estimates
        limits = [estimates[index].memory_gib.limit * GIB for index in short]
        found = remedies(
            [choices[index] for index in short], [device_of[index] for index in short], limits, peaks,
            self.efficiency.spread.surely_fits,
        )  # fmt: skip
        answers = list(estimates)
        for index, remedy in zip(short, found, strict=True):
            more = (*estimates[index].warnings, remedy)
            answers[index] = msgspec.structs.replace(estimates[index], warnings=more)
        return answers
