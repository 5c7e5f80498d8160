"""`raceline plan`: a model and a wish in, ranked hardware and settings out."""

from __future__ import annotations

import datetime
import re
import shlex
import sys
from typing import Any

import click

from raceline.cli.output import show
from raceline.present.errors import InputError

_SCALES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_NUMBER = re.compile(r"\s*\$?\s*([0-9][0-9_,]*\.?[0-9]*(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


LARGEST = 1e18


class Amount(click.ParamType):  # type: ignore[type-arg]
    """A number with an optional scale: ``100M``, ``1.5T``, ``2e9``."""

    name = "amount"

    def __init__(self, scales: dict[str, float], default_unit: str = "") -> None:
        self.scales, self.default_unit = scales, default_unit

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        found = _NUMBER.fullmatch(str(value))
        unit = (found.group(2) or self.default_unit).lower() if found else ""
        if (
            found is None
            or unit not in self.scales
            or not float(found.group(1).replace(",", "").replace("_", ""))
        ):
            raise InputError(
                "plan.amount_wrong", field=param.name if param else None, given=str(value)[:40],
                units=", ".join(name for name in self.scales if name),
            )  # fmt: skip
        amount = float(found.group(1).replace(",", "").replace("_", "")) * self.scales[unit]
        if amount > LARGEST:
            raise InputError("plan.amount_too_large", field=param.name if param else None, limit=LARGEST)
        return amount


NUMBER, DURATION = Amount(_SCALES), Amount(_SECONDS, "s")


@click.command("plan")
@click.argument("model")
@click.option("--task", type=click.Choice(["train", "infer"]), help="Train (the default) or serve.")
@click.option("--method", type=click.Choice(["pretrain", "full", "lora", "qlora"]), help="How to train.")
@click.option("--tokens", type=NUMBER, help="Training data in tokens: 100M, 1.5T.")
@click.option("--samples", type=NUMBER, help="Training data in samples: 1.28M.")
@click.option("--epochs", type=NUMBER, help="Passes over the data.")
@click.option("--seq-len", type=click.IntRange(1, 10**8), help="Tokens in a training sample.")
@click.option("--image-size", type=click.IntRange(8, 16384), help="Side of an image in pixels.")
@click.option("--global-batch", type=click.IntRange(1, 10**7), help="Samples in an optimizer step.")
@click.option(
    "--precision", type=click.Choice(["fp32", "tf32", "fp16", "bf16", "fp8"]), help="Only this one."
)
@click.option(
    "--optimizer", type=click.Choice(["adamw", "adamw-8bit", "adafactor", "sgd-momentum", "lion", "muon"])
)
@click.option("--runtime", help="Only this framework or engine (a catalogue id).")
@click.option("--interconnect", help="Link between nodes (a catalogue id).")
@click.option("--input-len", type=click.IntRange(1, 10**8), help="Tokens of a request, to serve.")
@click.option("--output-len", type=click.IntRange(1, 10**8), help="Tokens of an answer, to serve.")
@click.option("--deadline", type=DURATION, help="Be done within: 36h, 2d.")
@click.option("--budget", type=NUMBER, help="Spend at most: 500 (USD; an hour's when serving).")
@click.option("--qps", type=NUMBER, help="Answers a second to serve.")
@click.option("--users", type=click.IntRange(1, 10**7), help="People served at once.")
@click.option("--p99", type=DURATION, help="The slowest hundredth answers within: 50ms, 2s.")
@click.option("--ttft", type=DURATION, help="Time to the first token: 500ms.")
@click.option("--tpot", type=DURATION, help="Time per output token: 40ms.")
@click.option("--on", metavar="ACCELERATOR[xN]", help='Only this hardware: h100x8, "2 x RTX 4090".')
@click.option("--region", help="us, eu, asia, cn, me, or a provider's region.")
@click.option("--spot", is_flag=True, help="Take interruptible prices.")
@click.option(
    "--own", type=click.Path(dir_okay=False), help="YAML file with your own devices, links and prices."
)
@click.option("--top", type=click.IntRange(1, 100), help="Show this many options beside the picks.")
@click.option("--explain", is_flag=True, help="Show the calculation behind each pick.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    model: str, on: str | None, own: str | None, top: int | None, explain: bool, as_json: bool, **wish: Any
) -> None:
    """Which hardware and settings do the job of MODEL best, and why.

    MODEL is a bundled name (llama-3.1-8b), a config.json, a model folder, a .safetensors, .gguf,
    .onnx or .keras file, or hf:ORG/NAME. Ends with 1 where nothing fits.
    """
    from raceline import api
    from raceline.plan.explain import explained
    from raceline.plan.make import make_plan
    from raceline.plan.view import plan_view

    wish = {**wish, "top": top or 0, "words": typed(click.get_current_context())}
    request = request_of(api.read_model(model, wish.get("image_size")), on, wish)
    known = api.load_catalogue(own)
    plan = api.with_stack(make_plan(request, known), known)
    show(plan, as_json=as_json, view=lambda: explained(plan) if explain else plan_view(plan))
    if not plan.picks:
        sys.exit(1)


def typed(context: click.Context) -> str:
    """The flags that were typed, but for those that only choose how to show the answer."""
    words = []
    for parameter in context.command.params:
        name, value = parameter.name or "", context.params.get(parameter.name or "")
        if (
            not isinstance(parameter, click.Option)
            or name in ("as_json", "explain", "top")
            or value in (None, False)
        ):
            continue
        text = f"{value:g}" if isinstance(value, float) else str(value)
        words.append(parameter.opts[0] if value is True else f"{parameter.opts[0]} {shlex.quote(text)}")
    return " ".join(words)


def request_of(model: Any, on: str | None, wish: dict[str, Any]) -> Any:
    """The command's words as a PlanRequest."""
    from raceline.catalog.resolve import split_count
    from raceline.estimate.scenario import Task
    from raceline.plan.request import PlanRequest

    name, count = split_count(on) if on else (None, None)
    if count is not None and not 1 <= count <= 1_000_000:
        raise InputError("plan.count_wrong", field="on", given=on)
    serves = any(wish.get(key) for key in ("qps", "users", "p99", "ttft", "tpot", "input_len", "output_len"))
    task: Task = wish.pop("task") or ("infer" if serves else "train")
    given = {key: wish.pop(key) for key in ("p99", "ttft", "tpot")}
    deadline, budget = wish.pop("deadline"), wish.pop("budget")
    return PlanRequest(
        model=model, task=task, on=name, on_count=count, deadline_s=deadline, budget_usd=budget,
        p99_s=given["p99"], ttft_s=given["ttft"], tpot_s=given["tpot"], today=datetime.date.today(), **wish,
    )  # fmt: skip
