"""Refusing what can't be: a wish that contradicts a fact, or itself, is answered with the reason."""

from __future__ import annotations

from raceline.catalog import constraints, resolve
from raceline.catalog.types import Accelerator, Runtime
from raceline.estimate.devices import Device, peak_flops
from raceline.estimate.hardware import Catalogue
from raceline.plan.request import PlanRequest
from raceline.present.errors import InputError, RacelineError

_SERVING = ("qps", "users", "p99_s", "ttft_s", "tpot_s", "input_len", "output_len")
_TRAINING = ("method", "tokens", "samples", "epochs", "deadline_s", "global_batch", "optimizer", "lora_rank")
_LINK_KINDS = (
    "nvlink",
    "pcie",
    "infinity-fabric",
    "ici",
    "neuronlink",
    "roce",
    "infiniband",
    "ethernet",
    "efa",
)


def check(request: PlanRequest, catalogue: Catalogue) -> None:
    """Raise InputError for the first part of a wish that can't be had."""
    _check_words(request)
    runtime = resolve.runtime(request.runtime) if request.runtime else None
    if runtime and request.task not in runtime.tasks:
        raise InputError(
            f"catalog.runtime_cannot_{request.task}", field="runtime", runtime=runtime.name,
            source_url=runtime.source_url, accelerator=request.on or "-",
        )  # fmt: skip
    _check_link(request.interconnect)
    if request.on is not None:
        _check_hardware(request, catalogue.resolve(request.on).accelerator, runtime)


def _check_words(request: PlanRequest) -> None:
    """Flags that have no meaning for the task, or for what the model counts in."""
    wrong = _TRAINING if request.task == "infer" else _SERVING
    names = [name for name in wrong if getattr(request, name) is not None]
    if names:
        raise InputError("plan.flag_unfit", field=names[0], meaning=request.task)
    is_text = request.model.unit == "token"
    for name in ("seq_len", "tokens") if not is_text else ():
        if getattr(request, name) is not None:
            raise InputError("plan.flag_unfit", field=name, meaning=request.model.unit)
    if request.epochs is not None and request.tokens is None and request.samples is None:
        raise InputError("plan.epochs_of_nothing", field="epochs")
    if request.method in ("lora", "qlora") and not is_text and request.model.objective != "denoise":
        raise InputError("plan.flag_unfit", field="method", meaning=request.model.unit)


def _check_link(interconnect: str | None) -> None:
    if interconnect is None or interconnect in _LINK_KINDS:
        return
    try:
        resolve.link(interconnect)
    except RacelineError as error:
        raise InputError(error.message.id, **{**error.message.params, "field": "interconnect"}) from None


def _check_hardware(request: PlanRequest, accelerator: Accelerator, runtime: Runtime | None) -> None:
    link = request.interconnect
    if link is not None and link not in _LINK_KINDS:
        found_link = resolve.link(link)
        link = found_link.kind if found_link.scope != "inter-node" else None
    found = constraints.check(
        accelerator, runtime, request.precision, link, request.on_count or 1, task=request.task
    )
    if found:
        raise InputError(found[0].id, field="on", **found[0].params)
    device = Device(accelerator=accelerator)
    rates = [peak_flops(device, name) for name in ("bf16", "fp16", "fp32")]
    if not accelerator.memory_gib or not accelerator.memory_bw_gbs or not any(rates):
        raise InputError(
            "estimate.device_unknown", field="on", accelerator=accelerator.name,
            source_url=accelerator.source_url.split(" ")[0],
        )  # fmt: skip


def between_nodes(interconnect: str | None) -> str | None:
    """The id of a link between nodes; None for what joins cards inside one."""
    if interconnect is None or interconnect in _LINK_KINDS:
        return None
    link = resolve.link(interconnect)
    return link.id if link.scope == "inter-node" else None
