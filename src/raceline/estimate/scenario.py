"""What `estimate` takes: a workload on hardware under a setup. None means: not stated, choose it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

import msgspec

from raceline.present.errors import InputError

Task = Literal["train", "infer"]
Method = Literal["pretrain", "full", "lora", "qlora"]
Precision = Literal[
    "fp32", "tf32", "fp16", "bf16", "fp16-mixed", "bf16-mixed", "fp16-true", "bf16-true", "fp8", "mxfp8",
    "nvfp4", "int8",
]  # fmt: skip
WeightPrecision = Literal[
    "fp32", "fp16", "bf16", "fp8", "int8", "nf4", "nf4-double", "int4", "awq-int4", "gptq-int4", "mxfp4",
    "nvfp4", "mxfp8", "q2_k", "q2_k_s", "q3_k_s", "q3_k_m", "q4_0", "q4_k_s", "q4_k_m", "q5_0", "q5_k_s",
    "q5_k_m", "q6_k", "q8_0", "iq2_xxs", "iq2_xs", "iq2_m", "iq3_xxs", "iq3_s", "iq4_xs", "iq4_nl",
]  # fmt: skip
KvPrecision = Literal["fp32", "fp16", "bf16", "fp8", "int8", "int4", "q8_0", "q4_0"]
Optimizer = Literal[
    "adamw", "adamw-fused", "adamw-8bit", "adamw-paged", "adamw-8bit-paged", "adafactor", "sgd",
    "sgd-momentum", "lion", "muon", "none",
]  # fmt: skip
Recompute = Literal["none", "selective", "full"]
# How experts are computed while training: one after the other, cast one by one and computed together, or all
# in one kernel.
ExpertKernel = Literal["loop", "each", "grouped"]
# early: fused kernels that were written for an older architecture (Triton and FlashAttention 1 on Hopper).
AttentionKernel = Literal["flash", "eager", "early"]
Schedule = Literal["1f1b", "interleaved", "zero-bubble", "gpipe"]
Offload = Literal["none", "optimizer", "parameters", "all"]

PositiveInt = msgspec.Meta(ge=1, le=10**9)
Length = msgspec.Meta(ge=1, le=10**8)
Amount = msgspec.Meta(gt=0, le=1e18)
Count = Annotated[int, PositiveInt]
Tokens = Annotated[int, Length]
Positive = Annotated[float, Amount]


class Workload(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is done with the model. `seq_len` is the length of a (packed or padded) training
    sample, `longest_sample` the one that decides the peak where samples differ. `tokens` or
    `samples` is the amount of data in all, `concurrency` the sequences served at once, `cached_len` the
    tokens before each prompt whose keys and values stand in the cache already.
    `components`: the parts of a composed model that are on the device (None: all of them).
    `sample_bytes`: what reading one sample from storage moves; `sample_cpu_s`: seconds of one core that
    decoding and augmenting it takes."""

    task: Task = "train"
    method: Method | None = None
    seq_len: Tokens | None = None
    longest_sample: Tokens | None = None
    image_size: Annotated[int, msgspec.Meta(ge=8, le=16384)] | None = None
    tokens: Positive | None = None
    samples: Positive | None = None
    cached_len: Annotated[int, msgspec.Meta(ge=0, le=10**8)] | None = None
    input_len: Tokens | None = None
    output_len: Tokens | None = None
    concurrency: Count | None = None
    components: tuple[str, ...] | None = None
    sample_bytes: Positive | None = None
    sample_cpu_s: Positive | None = None


class Hardware(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What it runs on. `cores`: how many of a processor's cores compute (None: all). `interconnect` is a link
    id of the catalogue (between nodes), `offer` a provider:instance or provider. `memory_gib` states the usable
    memory where it is known, `read_mbs` what one node reads from storage (10^6 bytes/s)."""

    accelerator: str
    count: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] = 1
    per_node: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    interconnect: str | None = None
    mig_profile: str | None = None
    cores: Annotated[int, msgspec.Meta(ge=1, le=4096)] | None = None
    memory_gib: Annotated[float, msgspec.Meta(gt=0, le=1e5)] | None = None
    host_memory_gib: Annotated[float, msgspec.Meta(gt=0, le=1e7)] | None = None
    disk_gib: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    read_mbs: Annotated[float, msgspec.Meta(gt=0, le=1e9)] | None = None
    offer: str | None = None


class Pool(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Like workers of a disaggregated service: `workers` of tp x pp x attention_dp devices each. `batch`:
    sequences at once on one attention rank of a worker. Within a worker, expert_tp x ep = tp x attention_dp."""

    workers: Count = 1
    batch: Count | None = None
    tp: Count = 1
    pp: Count = 1
    attention_dp: Count = 1
    expert_tp: Count | None = None
    ep: Count | None = None

    @property
    def devices(self) -> int:
        """Devices of all workers."""
        return self.workers * self.tp * self.pp * self.attention_dp


class Setup(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How it is run. `micro_batch` is samples per data-parallel rank and forward pass,
    `global_batch` samples per optimizer step. `kv_memory_fraction`: the share of the device's
    memory that a serving engine may take. `loads_on_every_rank`: each process first holds the
    whole model in host memory; `optimizer_in_backward`: gradients are freed layer by layer;
    `keeps_frozen_gathered`: ZeRO-3 keeps frozen layers whole through the backward pass, as FSDP did
    before https://github.com/pytorch/pytorch/pull/101982. `expert_tp`: the tensor parallelism of experts,
    where it is not tp. `channels_last`: images are stored so that a position's channels lie together (compilers
    see to it themselves). Serving: `attention_dp` groups of tp devices in one replica attend to sequences of
    their own and share the experts; `prefill` and `decode` are the pools of a disaggregated service;
    `draft_tokens` are proposed for each step and checked in it (speculative decoding). `loaders`: processes or
    threads beside each device that prepare samples."""

    framework: str | None = None
    runtime: str | None = None
    runtime_version: str | None = None
    precision: Precision | None = None
    weight_precision: WeightPrecision | None = None
    kv_precision: KvPrecision | None = None
    optimizer: Optimizer | None = None
    dp: Count | None = None
    tp: Count | None = None
    pp: Count | None = None
    cp: Count | None = None
    ep: Count | None = None
    expert_tp: Count | None = None
    attention_dp: Count | None = None
    prefill: Pool | None = None
    decode: Pool | None = None
    draft_tokens: Annotated[int, msgspec.Meta(ge=1, le=16)] | None = None
    sequence_parallel: bool | None = None
    schedule: Schedule | None = None
    virtual_stages: Count | None = None
    zero_stage: Annotated[int, msgspec.Meta(ge=0, le=3)] | None = None
    zero_group: Count | None = None
    micro_batch: Count | None = None
    global_batch: Count | None = None
    recompute: Recompute | None = None
    attention: AttentionKernel | None = None
    experts: ExpertKernel | None = None
    fused_loss: bool | None = None
    loaders: Count | None = None
    compile: bool | None = None
    channels_last: bool | None = None
    offload: Offload | None = None
    lora_rank: Count | None = None
    lora_targets: tuple[str, ...] | str | None = None
    max_sequences: Count | None = None
    max_model_len: Tokens | None = None
    prefill_chunk: Tokens | None = None
    kv_memory_fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] | None = None
    loads_on_every_rank: bool | None = None
    optimizer_in_backward: bool | None = None
    keeps_frozen_gathered: bool | None = None


class Scenario(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One workload on one hardware under one setup."""

    model: str
    hardware: Hardware
    workload: Workload = Workload()
    setup: Setup = Setup()
    id: str = ""


_AT = re.compile(r" - at `\$?\.?([^`]*)`$")
_UNKNOWN = re.compile(r"unknown field `([^`]*)`")
_MISSING = re.compile(r"missing required field `([^`]*)`")
_TYPE_WORDS = {
    "`int`": "integer", "`float`": "number", "`str`": "text", "`object`": "mapping", "`bool`": "true/false",
    "`array`": "list", " | null": "", " | `null`": "",
}  # fmt: skip
_EXPECTED = re.compile(r"Expected ([^,]+?)(?:, got (.*))?$")


def parse(data: Any) -> Scenario:
    """A mapping (from YAML or JSON) as a Scenario.

    Raises InputError that names the field, what was given and what was expected.
    """
    try:
        return msgspec.convert(_tidy(data), Scenario)
    except msgspec.ValidationError as error:
        raise _as_input_error(str(error), data) from None


def _tidy(data: Any) -> Any:
    """Drop explicit nulls, and take whole floats for integers and numbers for `id`: YAML and people write them."""
    if not isinstance(data, Mapping):
        return data
    tidy = {key: value for key, value in data.items() if value is not None}
    for part in ("workload", "hardware", "setup"):
        if isinstance(tidy.get(part), Mapping):
            tidy[part] = {key: _whole(value) for key, value in tidy[part].items() if value is not None}
    if isinstance(tidy.get("id"), (int, float)) and not isinstance(tidy["id"], bool):
        tidy["id"] = str(tidy["id"])
    return tidy


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def _as_input_error(text: str, data: Any) -> InputError:
    where = _AT.search(text)
    path = where.group(1) if where else ""
    text = _AT.sub("", text)
    if found := _UNKNOWN.search(text):
        name = found.group(1)
        nearest = difflib.get_close_matches(name, _names_at(path), 1)
        known = ", ".join(_names_at(path))
        if not nearest:
            return InputError("estimate.field_not_known", field=_join(path, name), known=known)
        return InputError("estimate.field_unknown", field=_join(path, name), nearest=nearest[0])
    if found := _MISSING.search(text):
        return InputError("estimate.field_missing", field=_join(path, found.group(1)))
    expected = _EXPECTED.search(text)
    wanted = expected.group(1) if expected else text
    if "enum value" in text or "Invalid" in text:
        wanted = ", ".join(_choices_at(path)) or wanted
    for word, plain in _TYPE_WORDS.items():
        wanted = wanted.replace(word, plain)
    return InputError(
        "estimate.field_wrong", field=path or "scenario", given=_given(data, path), expected=wanted
    )


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


_PARTS: dict[str, type[msgspec.Struct]] = {
    "": Scenario,
    "workload": Workload,
    "hardware": Hardware,
    "setup": Setup,
    "setup.prefill": Pool,
    "setup.decode": Pool,
}


def _names_at(path: str) -> list[str]:
    return list(_PARTS[path].__struct_fields__) if path in _PARTS else []


def _choices_at(path: str) -> tuple[str, ...]:
    part, _, name = path.rpartition(".")
    choices = {
        "task": Task, "method": Method, "precision": Precision, "weight_precision": WeightPrecision,
        "kv_precision": KvPrecision, "optimizer": Optimizer, "recompute": Recompute,
        "attention": AttentionKernel, "experts": ExpertKernel, "schedule": Schedule, "offload": Offload,
    }  # fmt: skip
    return get_args(choices[name]) if name in choices and part in _PARTS else ()


def _given(data: Any, path: str) -> str:
    value = data
    for name in re.findall(r"[^.\[\]]+", path):
        value = value.get(name) if isinstance(value, Mapping) else None
    shown = repr(value)
    return shown if len(shown) <= 60 else shown[:57] + "..."
