"""How long a job takes, what it costs and what energy it uses."""

from __future__ import annotations

from raceline.estimate.result import Range

SECONDS_PER_HOUR = 3600.0


def training_steps(
    tokens: float | None, samples: float | None, tokens_per_sample: float, global_batch: float
) -> float | None:
    """Optimizer steps for an amount of data; None where no amount is given."""
    if samples is None and tokens is not None and tokens_per_sample > 0:
        samples = tokens / tokens_per_sample
    return None if samples is None else samples / global_batch


def scaled(step_s: Range, factor: float) -> Range:
    """A range times a factor."""
    return Range(step_s.low * factor, step_s.mid * factor, step_s.high * factor)


def cost_usd_per_million_tokens(
    step_s: Range, tokens_per_s_per_device: float | None, count: int, price_hour_usd: float | None
) -> Range | None:
    """The price of 10^6 tokens while all `count` devices are busy, as wide as the step's time is."""
    if not tokens_per_s_per_device or price_hour_usd is None:
        return None
    usd = price_hour_usd / SECONDS_PER_HOUR / (tokens_per_s_per_device * count) * 1e6
    return scaled(step_s, usd / step_s.mid)


def cost_usd(duration_s: Range | None, price_hour_usd: float | None) -> Range | None:
    """Duration times the price of all devices together; None where either is not known."""
    if duration_s is None or price_hour_usd is None:
        return None
    return scaled(duration_s, price_hour_usd / SECONDS_PER_HOUR)


def energy_kwh(
    duration_s: Range | None, power_w: float | None, count: int, busy_share: float, idle_share: float
) -> float | None:
    """Energy of the accelerators alone: their board power, less while they wait."""
    if duration_s is None or power_w is None:
        return None
    mean_w = power_w * (idle_share + (1.0 - idle_share) * busy_share)
    return duration_s.mid * mean_w * count / SECONDS_PER_HOUR / 1000.0
