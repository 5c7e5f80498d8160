"""Scores made by hand."""

from __future__ import annotations

from typing import Any

from raceline.accuracy.result import Scored, Scores, Unscored, Verdict


def scored(measured: float, predicted: float, **given: Any) -> Scored:
    """A value of `train-moe` in tokens per second; the range is predicted / 1.21 to predicted x 1.21."""
    base: dict[str, Any] = {
        "id": f"row-{measured:g}-{predicted:g}", "table": "training", "source": "one", "group": "train-moe",
        "source_url": "https://example.org", "metric": "tokens_per_s_per_device", "model": "mixtral",
        "family": "mixtral", "accelerator": "nvidia-h100-sxm-80gb", "framework": "megatron",
        "parameters_b": 47.0, "low": predicted / 1.21, "high": predicted * 1.21, "in_sample": measured,
    }  # fmt: skip
    base |= given
    base.setdefault("fold", f"source={base['source']}")
    return Scored(measured=measured, predicted=predicted, **base)


def verdict(ran: bool, said: str, **given: Any) -> Verdict:
    """A report of a run on a card of 24 GiB."""
    base: dict[str, Any] = {
        "id": f"fit-{ran}-{said}", "table": "fit", "source": "one", "source_url": "https://example.org",
        "model": "llama", "accelerator": "rtx-4090", "framework": "trl", "needed_gib": 20.0, "limit_gib": 24.0,
    }  # fmt: skip
    return Verdict(ran=ran, said=said, **(base | given))


def unscored(id: str, rule: str) -> Unscored:
    """A row that `rule` keeps out."""
    return Unscored(id=id, table="training", source="one", rule=rule, reason=f"because of {rule}")


def scores(*values: Scored, rows: int = 10, **given: Any) -> Scores:
    """What scoring of ten rows gave."""
    base: dict[str, Any] = {"verdicts": (), "unscored": ()}
    return Scores(rows=rows, scored=values, **(base | given))
