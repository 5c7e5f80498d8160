"""What `plan` answers."""

from __future__ import annotations

from typing import Any

import msgspec

from raceline.estimate.result import Estimate, Range
from raceline.estimate.scenario import Scenario
from raceline.present.errors import Message
from raceline.stack.request import Solution


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """One way to do the job: hardware, settings, what they need and what they cost.

    `duration_s` and `cost_usd` are of the whole job when training; when serving `cost_usd` is for
    an hour of all `replicas`. `risk` from 0 to 1 grows with what may go wrong (`risks` say what).
    """

    name: str
    accelerator: str
    accelerator_name: str
    count: int
    scenario: Scenario
    estimate: Estimate
    price_hour_usd: float | None = None
    provider: str | None = None
    region: str | None = None
    price_as_of: str | None = None
    duration_s: Range | None = None
    cost_usd: Range | None = None
    usd_per_million_tokens: float | None = None
    replicas: int = 1
    risk: float = 0.0
    risks: tuple[Message, ...] = ()
    reasons: tuple[Message, ...] = ()
    runner_up: tuple[Message, ...] = ()


class Shortfall(msgspec.Struct, frozen=True, kw_only=True):
    """Why nothing was picked: `reason` says which part of the wish failed. `estimate` shows the job at
    its smallest on the hardware asked for where memory is what lacks."""

    reason: Message
    accelerator_name: str | None = None
    count: int | None = None
    estimate: Estimate | None = None
    closest: tuple[Option, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Ranked options. `picks` are named (balanced, cheapest, fastest); `front` is not beaten in
    time, cost and risk together, `options` the cheapest that were asked for. `evaluated` and `pruned`
    count configurations. `stack` is a set of software for the first pick, which the shell adds."""

    model: str
    parameters: int
    task: str
    method: str | None
    amount: dict[str, Any]
    picks: tuple[Option, ...]
    front: tuple[Option, ...]
    assumed: dict[str, Any]
    notes: tuple[Message, ...]
    commands: tuple[Message, ...]
    evaluated: int
    pruned: int
    shortfall: Shortfall | None = None
    options: tuple[Option, ...] = ()
    stack: Solution | None = None
    schema: str = "raceline.plan/1"
