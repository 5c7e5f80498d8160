"""What a plan is asked for."""

from __future__ import annotations

import datetime
from typing import Annotated, Literal

import msgspec

from raceline.estimate.scenario import Method
from raceline.models.graph import Model
from raceline.present.errors import InputError

Amount = Annotated[float, msgspec.Meta(gt=0, le=1e18)]


class PlanRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A wish: what to do with a model, by when and for how much.

    `tokens`, `samples` or `epochs` (of `samples`) say how much training; `qps`, `users`, `p99_s`,
    `ttft_s` and `tpot_s` what a service must reach. `on`: only this accelerator (and count).
    `words`: the flags as they were typed, for the next commands. `today` dates the prices.
    """

    model: Model
    task: Literal["train", "infer"] = "train"
    method: Method | None = None
    tokens: Amount | None = None
    samples: Amount | None = None
    epochs: Amount | None = None
    seq_len: int | None = None
    image_size: int | None = None
    input_len: int | None = None
    output_len: int | None = None
    global_batch: int | None = None
    optimizer: str | None = None
    precision: str | None = None
    weight_precision: str | None = None
    runtime: str | None = None
    interconnect: str | None = None
    lora_rank: int | None = None
    deadline_s: Amount | None = None
    budget_usd: Amount | None = None
    qps: Amount | None = None
    users: int | None = None
    p99_s: Amount | None = None
    ttft_s: Amount | None = None
    tpot_s: Amount | None = None
    on: str | None = None
    on_count: int | None = None
    region: str | None = None
    spot: bool = False
    most_devices: int = 1024
    top: int = 0
    words: str = ""
    today: datetime.date


DEFAULT_TOKENS = 100e6
DEFAULT_IMAGES = 1_281_167 * 90.0
DEFAULT_SAMPLES = 1e6
DEFAULT_USERS = 8
DEFAULT_LORA_RANK = 16


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A training wish in full. `tokens_per_sample` is 0 for models that count images or samples."""

    method: Method
    seq_len: int
    target_len: int
    tokens_per_sample: int
    samples: float
    global_batch: int
    lora_rank: int | None
    assumed: dict[str, object]


def training_job(request: PlanRequest) -> Job:
    """What is trained on how much, with the usual answer where the request is silent."""
    model, assumed = request.model, dict[str, object]()
    is_text = model.unit == "token"
    method: Method = request.method or ("lora" if is_text and model.objective == "causal" else "pretrain")
    if request.method is None:
        assumed["method"] = method
    seq_len = request.seq_len or _usual_length(model)
    if request.seq_len is None and seq_len:
        assumed["seq_len"] = seq_len
    per_sample = seq_len if is_text else 0
    samples = _samples(request, per_sample, assumed)
    batch = request.global_batch or _usual_batch(method, per_sample, request.on_count or 1)
    if request.global_batch is None:
        assumed["global_batch"] = batch
    is_adapter = method in ("lora", "qlora")
    return Job(
        method=method,
        seq_len=seq_len,
        target_len=model.target_len,
        tokens_per_sample=per_sample,
        samples=samples,
        global_batch=batch,
        lora_rank=(request.lora_rank or DEFAULT_LORA_RANK) if is_adapter else None,
        assumed=assumed,
    )


USUAL_LENGTH = 4096
LARGEST_AMOUNT = 1e18


def _usual_length(model: Model) -> int:
    """Tokens of a sample: the longest that the model was made for, at most USUAL_LENGTH."""
    if model.unit != "token":
        return model.seq_len
    return min(model.max_seq_len or model.seq_len or USUAL_LENGTH, USUAL_LENGTH)


def _samples(request: PlanRequest, per_sample: int, assumed: dict[str, object]) -> float:
    epochs = request.epochs or 1.0
    amount = (request.samples or request.tokens or 0.0) * epochs
    if not amount <= LARGEST_AMOUNT:
        raise InputError("plan.amount_too_large", field="epochs", limit=LARGEST_AMOUNT)
    if request.samples is not None:
        return amount
    if request.tokens is not None:
        return amount / max(per_sample, 1)
    if per_sample:
        assumed["tokens"] = DEFAULT_TOKENS
        return DEFAULT_TOKENS / per_sample
    samples = DEFAULT_IMAGES if request.model.unit == "image" else DEFAULT_SAMPLES
    assumed["samples"] = samples
    return samples


def _usual_batch(method: Method, per_sample: int, count: int) -> int:
    """Samples of an optimizer step: half a million tokens to pretrain, 64 samples to fine-tune,
    1,024 images; powers of two, or the next multiple of the devices asked for."""
    if not per_sample:
        batch = 1024
    elif method != "pretrain":
        batch = 64
    else:
        batch = max(64, 1 << round(524_288 / per_sample).bit_length() - 1)
    return -(-batch // count) * count if count > 0 else batch
