"""From the best configuration of each hardware to a front, three picks and their reasons."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from raceline.plan.result import Option
from raceline.present.errors import Message, message

LOW_UTILISATION = 0.30
BUDGET_OVER_CHEAPEST = 3.0
# Prices this close are one price: less risk wins, then less time.
SAME_COST = 1.02
WEIGHT_OF_TIME = 0.5
WEIGHT_OF_RISK = 1.0


def cost_of(option: Option) -> float:
    """The cost that ranks an option; options without a price come last."""
    return option.cost_usd.mid if option.cost_usd else math.inf


def time_of(option: Option) -> float:
    """The time that ranks an option: the job's, or the time per token when serving."""
    if option.duration_s:
        return option.duration_s.mid
    latency = option.estimate.latency_ms
    shown = latency.tpot or latency.batch
    return shown / 1000.0 if shown else math.inf


def front(options: Sequence[Option]) -> list[Option]:
    """Options that no other beats in time, cost and risk together, cheapest first."""
    keys = [(time_of(option), cost_of(option), round(option.risk, 2)) for option in options]
    kept = [
        option
        for index, option in enumerate(options)
        if not any(_beats(other, keys[index]) for place, other in enumerate(keys) if place != index)
    ]
    return sorted(kept, key=lambda option: (cost_of(option), time_of(option)))


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return all(a <= b for a, b in zip(one, other, strict=True)) and one != other


def pick(options: Sequence[Option], deadline_s: float | None, budget_usd: float | None) -> list[Option]:
    """Balanced, cheapest and fastest of the options, each once, with why it wins and what lost."""
    within = [o for o in options if deadline_s is None or o.duration_s is None or time_of(o) <= deadline_s]
    within = [o for o in within if budget_usd is None or cost_of(o) <= budget_usd]
    if not within:
        return []
    least = min(cost_of(o) for o in within)
    cheapest = min((o for o in within if cost_of(o) <= least * SAME_COST), key=lambda o: (o.risk, time_of(o)))
    limit = budget_usd or BUDGET_OVER_CHEAPEST * cost_of(cheapest)
    affordable = [o for o in within if cost_of(o) <= limit] or within
    fastest = min(affordable, key=lambda o: (time_of(o), cost_of(o)))
    score = _score(cost_of(cheapest), time_of(fastest))
    balanced = min(affordable, key=score)
    named = [
        _named("balanced", balanced, _why_balanced(balanced, cheapest, fastest), _runner_up(balanced, within, score)),
        _named("cheapest", cheapest, _why_cheapest(cheapest, deadline_s), _runner_up(cheapest, within, cost_of)),
        _named("fastest", fastest, _why_fastest(fastest, limit, budget_usd), _runner_up(fastest, affordable, time_of)),
    ]  # fmt: skip
    return _merge(named)


def _score(least_usd: float, least_s: float) -> Callable[[Option], float]:
    def score(option: Option) -> float:
        cost, time = cost_of(option), time_of(option)
        money = math.log(cost / least_usd) if math.isfinite(cost) and least_usd > 0 else 0.0
        return money + WEIGHT_OF_TIME * math.log(max(time / least_s, 1e-9)) + WEIGHT_OF_RISK * option.risk

    return score


def _named(name: str, option: Option, reasons: list[Message], runner_up: list[Message]) -> Option:
    low = _low_utilisation(option)
    return msgspec.structs.replace(option, name=name, reasons=(*reasons, *low), runner_up=tuple(runner_up))


def _merge(options: list[Option]) -> list[Option]:
    """One row for an option that wins several names."""
    merged: dict[tuple[str, int], Option] = {}
    for option in options:
        key = (option.accelerator, option.count)
        if key in merged:
            first = merged[key]
            option = msgspec.structs.replace(
                first, name=f"{first.name}+{option.name}", reasons=(*first.reasons, *option.reasons[:1])
            )
        merged[key] = option
    return list(merged.values())


def _why_balanced(option: Option, cheapest: Option, fastest: Option) -> list[Message]:
    if _same(option, cheapest) and _same(option, fastest):
        return [message("plan.wins_everything")]
    reasons = []
    if not _same(option, cheapest):
        reasons.append(_compared("over_cheapest", cheapest, option))
    if not _same(option, fastest):
        reasons.append(_compared("under_fastest", fastest, option))
    return reasons


def _why_cheapest(option: Option, deadline_s: float | None) -> list[Message]:
    if cost_of(option) == math.inf:
        return []
    if deadline_s:
        return [message("plan.cheapest_in_time", cost_usd=cost_of(option), deadline_s=deadline_s)]
    return [message("plan.cheapest", cost_usd=cost_of(option))]


def _why_fastest(option: Option, limit: float, budget_usd: float | None) -> list[Message]:
    if budget_usd:
        return [message("plan.fastest_in_budget", time_s=time_of(option), budget_usd=limit)]
    if not math.isfinite(limit):
        return []
    name = "plan.fastest" if option.duration_s else "plan.fastest_service"
    return [message(name, time_s=time_of(option), budget_usd=limit)]


def _runner_up(option: Option, options: Sequence[Option], key: Callable[[Option], float]) -> list[Message]:
    """The next best on other hardware, and why it lost."""
    others = [other for other in options if other.accelerator != option.accelerator]
    if not others:
        return []
    return [_compared("runner_up", min(others, key=key), option)]


def _compared(purpose: str, other: Option, option: Option) -> Message:
    """How `other` differs from `option` in money and time; by the signs, in words that fit them."""
    usd, seconds = cost_of(other) - cost_of(option), time_of(other) - time_of(option)
    if not math.isfinite(usd):
        usd = 0.0
    if purpose == "runner_up" and abs(usd) < (SAME_COST - 1.0) * cost_of(option) and seconds > 0:
        return message(
            "plan.runner_up_same_price", count=other.count, accelerator=other.accelerator_name, more_s=seconds
        )
    fitting = {"over_cheapest": usd <= 0 < seconds, "under_fastest": seconds <= 0 < usd}
    name = f"plan.{purpose}" if fitting.get(purpose) else f"plan.runner_up_{_relation(usd, seconds)}"
    return message(
        name, count=other.count, accelerator=other.accelerator_name, more_usd=abs(usd), less_usd=abs(usd),
        more_s=abs(seconds), less_s=abs(seconds), risk_fraction=other.risk, own_fraction=option.risk,
    )  # fmt: skip


def _relation(usd: float, seconds: float) -> str:
    if usd >= 0:
        return "worse" if seconds >= 0 else "dearer"
    return "slower" if seconds >= 0 else "riskier"


def _low_utilisation(option: Option) -> list[Message]:
    mfu = option.estimate.mfu
    if (
        mfu is None
        or mfu >= LOW_UTILISATION
        or option.estimate.step_time_s is None
        or option.duration_s is None
    ):
        return []
    return [message("plan.low_utilisation", mfu_fraction=mfu, bound_by=option.estimate.bound_by)]


def _same(one: Option, other: Option) -> bool:
    return (one.accelerator, one.count) == (other.accelerator, other.count)
