"""Filling in what a scenario leaves out, and refusing what can't be.

`choose` answers with a `Choice`: the scenario's settings in full. Two of them may stay open when
training: `recompute` and `micro_batch`; the evaluation tries their candidates and keeps the fastest
that fits.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from raceline.catalog import constraints, load
from raceline.estimate.calibration import NO_KEYS, UNSCALED, Keys
from raceline.estimate.conventions import EXPERT_KERNELS, bytes_per_element, convention, engine
from raceline.estimate.devices import FORMATS, Device, peak_flops
from raceline.estimate.scenario import Scenario, Setup, Workload
from raceline.estimate.streaming import multiplied_in
from raceline.models.graph import Attention, Matmul, Model
from raceline.present.errors import InputError, Message, message

DEFAULT_SEQ_LEN = 4096
DEFAULT_INPUT_LEN = 1024
DEFAULT_OUTPUT_LEN = 256
MICRO_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LARGE_MICRO_BATCHES = (512, 1024, 2048, 4096, 8192, 16_384)
_SHARDED = {"pytorch-fsdp2", "torchtitan", "jax", "llm-foundry", "litgpt", "torchtune"}


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """A scenario in full. `micro_batches` and `recomputes` are the candidates that are open."""

    scenario: Scenario
    model: Model
    device: Device
    task: str
    method: str | None
    precision: str
    number_format: str
    states: str
    weight_precision: str | None
    kv_precision: str
    optimizer: str
    runtime: str
    dp: int
    tp: int
    pp: int
    cp: int
    ep: int
    attention_dp: int
    expert_tp: int
    zero_stage: int
    zero_group: int
    seq_len: int
    target_len: int
    input_len: int
    output_len: int
    concurrency: int
    micro_batches: tuple[int, ...]
    recomputes: tuple[str, ...]
    global_batch: int | None
    attention: str
    is_fused: bool
    expert_kernels: float
    channels_last: bool
    host_scale: float
    fused_loss: bool
    logit_bytes: float
    offload: str
    schedule: str
    virtual_stages: int
    sequence_parallel: bool
    lora_targets: tuple[str, ...] | None
    chosen: dict[str, Any]
    notes: tuple[Message, ...] = ()
    scale: tuple[float, ...] = UNSCALED
    keys: Keys = NO_KEYS
    usual_len: int = 0

    @property
    def count(self) -> int:
        """Devices of the run."""
        return self.dp * self.tp * self.pp * self.cp


def choose(
    scenario: Scenario, model: Model, device: Device, notes: tuple[Message, ...] = (), parameters: float = 0.0
) -> Choice:
    """The scenario with every open setting decided by its `parameters` too; InputError where settings contradict."""
    workload, setup = scenario.workload, scenario.setup
    picker = _Picker(setup)
    is_training = workload.task == "train"
    method = _method(workload, setup, model, picker) if is_training else None
    runtime = picker.take("runtime", _runtime(scenario, model, device, is_training))
    notes = (*notes, *_check_runtime(runtime, scenario, device))
    precision = setup.precision or picker.take(
        "precision", _precision(setup, model, device, method, is_training)
    )
    number_format = _number_format(precision, device, setup)
    if not is_training:
        number_format = multiplied_in(setup.weight_precision or model.weight_format, number_format, device)
    stored = bytes_per_element(setup.weight_precision or model.weight_format or precision)
    layout = _layout(scenario, model, picker, is_training, parameters * stored / 2**30, device)
    if is_training:
        _check_batch(setup, layout)
        if setup.weight_precision and method in ("pretrain", "full"):
            raise InputError("estimate.weights_are_trained", field="setup.weight_precision", method=method)
    lengths = _lengths(workload, model, picker, is_training)
    habits, kernels = convention(runtime), _kernels(setup, runtime, layout, picker, is_training)
    zero = _zero(scenario, layout, runtime, picker) if is_training else 0
    return Choice(
        scenario=scenario,
        model=model,
        device=device,
        task=workload.task,
        method=method,
        precision=precision,
        number_format=number_format,
        states=_states(precision, runtime, habits.bf16, habits.fp16, setup, method),
        weight_precision=_weight_precision(setup, model, method, precision, is_training, picker),
        kv_precision=setup.kv_precision or _base(precision if precision not in ("fp8", "int8") else "bf16"),
        optimizer=picker.take("optimizer", "adamw") if is_training else "none",
        runtime=runtime,
        **layout,
        zero_stage=zero,
        zero_group=_zero_group(setup, layout, zero),
        **lengths,
        concurrency=_at_once(workload, setup, picker),
        micro_batches=_micro_batches(setup, layout, is_training, model.unit),
        recomputes=(setup.recompute,) if setup.recompute else ("none", "selective", "full"),
        global_batch=setup.global_batch,
        attention=picker.take("attention", "flash"),
        **kernels,
        offload=picker.take("offload", "none") if is_training else setup.offload or "none",
        schedule=picker.take("schedule", "1f1b") if layout["pp"] > 1 else setup.schedule or "1f1b",
        virtual_stages=setup.virtual_stages or 1,
        sequence_parallel=_sequence_parallel(setup, layout, runtime),
        lora_targets=_targets(setup),
        chosen=picker.chosen,
        notes=notes,
    )


def _at_once(workload: Workload, setup: Setup, picker: _Picker) -> int:
    given = workload.concurrency
    return 1 if workload.task == "train" else picker.note("concurrency", given, _concurrency(setup))


def _kernels(
    setup: Setup, runtime: str, layout: dict[str, int], picker: _Picker, is_training: bool
) -> dict[str, Any]:
    """What the runtime fuses, and how its kernels start."""
    habits = convention(runtime)
    is_fused = bool(setup.compile) or (habits.fused if is_training else engine(runtime).fused)
    fused_loss = bool(picker.take("fused_loss", False)) if is_training else False
    return {
        "is_fused": is_fused,
        "expert_kernels": EXPERT_KERNELS[setup.experts or habits.training.experts] if is_training else 0.0,
        "host_scale": _host_scale(habits.training.one_process, layout, setup),
        "channels_last": is_fused if setup.channels_last is None else setup.channels_last,
        "fused_loss": fused_loss,
        "logit_bytes": logit_bytes(habits.training.logit_bytes, bool(setup.compile), fused_loss),
    }


EARLY_HOST = 2.0  # of PyTorch's first versions, a kernel's start over that of version 2


def _host_scale(is_one_process: bool, layout: dict[str, int], setup: Setup) -> float:
    """The host's time over that of a process for each device and a present-day version."""
    early = EARLY_HOST if (setup.runtime_version or "").startswith(("0.", "1.")) else 1.0
    return early * (layout["dp"] * layout["cp"] if is_one_process else 1)


# Bytes a logit under a compiled loss, and the chunks that a chunked loss cuts the logits into
# (https://github.com/meta-pytorch/torchtune, CEWithChunkedOutputLoss: 8).
COMPILED_LOGIT_BYTES = 7.5
LOSS_CHUNKS = 8
# Share of a device's memory that weights may take when devices are cut to serve them.
ROOM_FOR_WEIGHTS = 0.75


def logit_bytes(habit: float, is_compiled: bool, is_chunked: bool) -> float:
    """Bytes that a logit costs at the peak under a runtime's habit."""
    per_logit = min(habit, COMPILED_LOGIT_BYTES) if is_compiled else habit
    return per_logit / LOSS_CHUNKS if is_chunked else per_logit


class _Picker:
    """Notes each setting that the scenario left open in `chosen`."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.chosen: dict[str, Any] = {}

    def take(self, name: str, default: Any) -> Any:
        given = getattr(self.setup, name, None)
        if given is not None:
            return given
        self.chosen[name] = default
        return default

    def note(self, name: str, given: Any, default: Any) -> Any:
        if given is not None:
            return given
        self.chosen[name] = default
        return default


def _method(workload: Workload, setup: Setup, model: Model, picker: _Picker) -> str:
    default = "lora" if setup.lora_rank else "pretrain"
    method: str = picker.note("method", workload.method, default)
    if method == "qlora" and setup.weight_precision is None:
        picker.chosen["weight_precision"] = "nf4"
    return method


def usual_engine(model: Model, kind: str = "gpu") -> str:
    """The engine that serves a model on this kind of device where none is named."""
    if model.objective == "denoise":
        return "diffusers"
    if model.objective != "causal":
        return "onnxruntime"
    return "llama.cpp" if kind == "cpu" else "vllm"


def _runtime(scenario: Scenario, model: Model, device: Device, is_training: bool) -> str:
    setup, count = scenario.setup, scenario.hardware.count
    if setup.framework and setup.framework not in ("pytorch", "torch"):
        return setup.framework
    if not is_training:
        return usual_engine(model, device.accelerator.kind)
    if setup.zero_stage == 0 and count > 1:
        return "pytorch-ddp"
    return "pytorch-fsdp2" if count > 1 else "pytorch"


def _precision(setup: Setup, model: Model, device: Device, method: str | None, is_training: bool) -> str:
    for wanted in ("bf16", "fp16", "fp32"):
        if peak_flops(device, wanted) > 0:
            return wanted
    raise InputError("estimate.no_rate", field="hardware.accelerator", accelerator=device.accelerator.id)


def _base(precision: str) -> str:
    return precision.removesuffix("-mixed").removesuffix("-true")


def _check_runtime(runtime: str, scenario: Scenario, device: Device) -> list[Message]:
    """Refuse a runtime of the catalogue that can't run this; say so where it isn't in the catalogue."""
    row = load.runtimes().get(runtime)
    if row is None:
        return [message("estimate.runtime_unknown", runtime=runtime)] if scenario.setup.runtime else []
    found = constraints.check_runtime(device.accelerator, row, None, scenario.workload.task)
    if found:
        raise InputError(found[0].id, **{**found[0].params, "field": "setup.runtime"})
    return []


_FORMAT_OF = {"mxfp8": "fp8", "nvfp4": "fp4"}


def _number_format(precision: str, device: Device, setup: Setup) -> str:
    """The catalogue's rate that matmuls run at; refuses what the device can't do."""
    wanted = _FORMAT_OF.get(_base(precision), _base(precision))
    if wanted == "tf32" and peak_flops(device, "tf32") <= 0:
        wanted = "fp32"
    assert wanted in FORMATS
    if peak_flops(device, wanted) > 0:
        return wanted
    if wanted == "fp32" and peak_flops(device, "bf16") > 0:
        return "bf16"
    raise InputError(
        "estimate.precision_unsupported", field="setup.precision", precision=precision,
        accelerator=device.accelerator.name, source_url=device.accelerator.source_url.split(" ")[0],
    )  # fmt: skip


def _cut_to_fit(most: int, weight_gib: float, device: Device) -> int:
    """The least tensor parallelism that divides the devices and leaves room beside the weights."""
    room = (device.memory_gib or device.accelerator.memory_gib or 1.0) * ROOM_FOR_WEIGHTS
    fitting = [tp for tp in range(1, max(1, most) + 1) if most % tp == 0 and weight_gib / tp <= room]
    return fitting[0] if fitting else max(1, most)


def _decoding(setup: Setup, count: int) -> tuple[Setup, int]:
    """A disaggregated service's layout is its decode pool's; the pools together use all devices."""
    if setup.decode is None:
        return setup, count
    pools = [pool for pool in (setup.prefill, setup.decode) if pool is not None]
    if sum(pool.devices for pool in pools) != count:
        devices = " + ".join(str(pool.devices) for pool in pools)
        raise InputError("estimate.pools_mismatch", field="setup.decode", devices=devices, count=count)
    pool = setup.decode
    layout = msgspec.structs.replace(
        setup,
        tp=pool.tp,
        pp=pool.pp,
        ep=pool.ep,
        expert_tp=pool.expert_tp,
        attention_dp=pool.attention_dp,
        dp=pool.workers * pool.attention_dp,
    )
    return layout, pool.devices


def _layout(
    scenario: Scenario, model: Model, picker: _Picker, is_training: bool, weight_gib: float, device: Device
) -> dict[str, Any]:
    setup, count = _decoding(scenario.setup, scenario.hardware.count)
    pp, cp, ep = setup.pp or 1, setup.cp or 1, setup.ep or 1
    tp = setup.tp or (
        1 if is_training else _cut_to_fit(count // (pp * cp * (setup.dp or 1)), weight_gib, device)
    )
    if setup.tp is None and tp > 1:
        picker.chosen["tp"] = tp
    dp = setup.dp or max(1, count // (tp * pp * cp))
    if setup.dp is None:
        picker.chosen["dp"] = dp
    if dp * tp * pp * cp != count:
        raise InputError(
            "estimate.layout_mismatch", field="setup.dp", dp=dp, tp=tp, pp=pp, cp=cp, count=count
        )
    _check_cuts(setup, model, tp, pp, ep)
    if (dp * cp * tp) % ep:
        raise InputError("estimate.experts_mismatch", field="setup.ep", ep=ep, ranks=dp * cp * tp)
    ranks = 1 if is_training else _attention_ranks(setup, tp, ep, dp)
    expert_tp = tp if is_training else setup.expert_tp or max(1, tp * ranks // ep)
    return {"dp": dp, "tp": tp, "pp": pp, "cp": cp, "ep": ep, "attention_dp": ranks, "expert_tp": expert_tp}


def _attention_ranks(setup: Setup, tp: int, ep: int, dp: int) -> int:
    """Attention groups of one replica; experts over more devices than tp have several."""
    ranks = setup.attention_dp or max(1, ep // tp)
    if dp % ranks:
        raise InputError(
            "estimate.layout_mismatch", field="setup.attention_dp", dp=ranks, tp=tp, pp=1, cp=1, count=dp * tp
        )
    return ranks


def _check_cuts(setup: Setup, model: Model, tp: int, pp: int, ep: int) -> None:
    """Cuts that the model can't be cut by."""
    stages = pp * (setup.virtual_stages or 1)
    if stages > max(model.layers, 1):
        field = "setup.pp" if pp > max(model.layers, 1) else "setup.virtual_stages"
        raise InputError("estimate.too_many_stages", field=field, pp=stages, layers=model.layers)
    ops = [op for block in model.blocks for op in block.ops] if tp * ep > 1 else []
    heads = {op.heads for op in ops if isinstance(op, Attention)}
    pads = engine(setup.runtime or "-").serving.pads_heads
    if not pads and any(count % tp for count in heads):
        raise InputError(
            "estimate.heads_mismatch", field="setup.tp", tp=tp, heads=", ".join(map(str, sorted(heads)))
        )
    experts = max((op.experts for op in ops if isinstance(op, Matmul)), default=1)
    if ep > experts:
        raise InputError("estimate.experts_missing", field="setup.ep", ep=ep, experts=experts)


def _check_batch(setup: Setup, layout: dict[str, int]) -> None:
    """A global batch is a whole number of micro batches on every rank."""
    if setup.global_batch is None:
        return
    size = (setup.micro_batch or 1) * layout["dp"]
    if setup.global_batch % size:
        raise InputError(
            "estimate.batch_mismatch", field="setup.global_batch", global_batch=setup.global_batch,
            micro_batch=setup.micro_batch or 1, dp=layout["dp"],
        )  # fmt: skip


def _lengths(workload: Workload, model: Model, picker: _Picker, is_training: bool) -> dict[str, Any]:
    longest = model.max_seq_len or DEFAULT_SEQ_LEN
    uses_tokens = model.unit != "image" and any(
        op.rows.per_token for block in model.blocks for op in block.ops
    )
    default = (model.seq_len or min(longest, DEFAULT_SEQ_LEN)) if uses_tokens else 0
    given = workload.longest_sample or workload.seq_len
    target = model.target_len
    if is_training:
        seq_len = picker.note("seq_len", given, default) if uses_tokens else 0
        if target:
            target = workload.output_len or target
        usual = min(workload.seq_len or seq_len, seq_len)
        return {
            "seq_len": seq_len, "target_len": target, "input_len": 0, "output_len": 0, "usual_len": usual,
        }  # fmt: skip
    if model.objective not in ("causal", "seq2seq"):
        length = given or workload.input_len or default
        return {"seq_len": length, "target_len": target, "input_len": length, "output_len": 0}
    output = picker.note("output_len", workload.output_len, DEFAULT_OUTPUT_LEN)
    fallback = max(1, given - output) if given else min(DEFAULT_INPUT_LEN, longest)
    input_len = picker.note("input_len", workload.input_len, fallback)
    return {"seq_len": input_len + output, "target_len": target, "input_len": input_len, "output_len": output}


def _zero(scenario: Scenario, layout: dict[str, int], runtime: str, picker: _Picker) -> int:
    ranks = layout["dp"] * layout["cp"]
    default = convention(runtime).training.zero_stage if ranks > 1 else 0
    return int(picker.take("zero_stage", default))


def _zero_group(setup: Setup, layout: dict[str, int], zero: int) -> int:
    ranks = layout["dp"] * layout["cp"]
    if zero == 0:
        return 1
    group = setup.zero_group or ranks
    if ranks % group:
        raise InputError(
            "estimate.zero_group_mismatch", field="setup.zero_group", zero_group=group, ranks=ranks
        )
    return group


def _concurrency(setup: Setup) -> int:
    return setup.max_sequences or setup.micro_batch or 1


def _micro_batches(setup: Setup, layout: dict[str, int], is_training: bool, unit: str) -> tuple[int, ...]:
    if not is_training or setup.micro_batch:
        return (setup.micro_batch or 1,)
    if setup.global_batch:
        most = max(1, setup.global_batch // layout["dp"])
        sizes = MICRO_BATCHES if unit == "token" else (*MICRO_BATCHES, *LARGE_MICRO_BATCHES)
        return tuple(size for size in sizes if size <= most and most % size == 0) or (1,)
    return MICRO_BATCHES if unit == "token" else (*MICRO_BATCHES, *LARGE_MICRO_BATCHES)


def _states(precision: str, runtime: str, bf16: str, fp16: str, setup: Setup, method: str | None) -> str:
    if precision.endswith("-true"):
        return "true"
    if precision.endswith("-mixed"):
        return "amp"
    is_sharded = bool(setup.zero_stage) and method in ("pretrain", "full")
    if is_sharded and "deepspeed" in runtime:
        return "both" if bf16 == "both" and precision == "bf16" and setup.zero_stage == 1 else "master"
    if precision == "fp16":
        return fp16
    return "master" if is_sharded and "transformers" in runtime else bf16


def _weight_precision(
    setup: Setup, model: Model, method: str | None, precision: str, is_training: bool, picker: _Picker
) -> str | None:
    """What frozen or served weights are stored in; None where weights are trained."""
    if setup.weight_precision:
        return setup.weight_precision
    if is_training:
        return "nf4" if method == "qlora" else None
    if model.weight_format:
        picker.chosen["weight_precision"] = model.weight_format
        return model.weight_format
    return _base(precision)


def _sequence_parallel(setup: Setup, layout: dict[str, int], runtime: str) -> bool:
    if setup.sequence_parallel is not None:
        return setup.sequence_parallel
    return layout["tp"] > 1 and "megatron" in runtime


def _targets(setup: Setup) -> tuple[str, ...] | None:
    targets = setup.lora_targets
    if targets is None or targets in ("all", "all-linear"):
        return None
    names = targets.split(",") if isinstance(targets, str) else targets
    return None if "all" in names or "all-linear" in names else tuple(name.strip() for name in names)


def accumulation(choice: Choice, micro_batch: int) -> int:
    """Micro batches in one optimizer step."""
    if choice.global_batch is None:
        return max(1, choice.pp if choice.pp > 1 else 1) * (4 if choice.pp > 1 else 1)
    return max(1, math.ceil(choice.global_batch / (micro_batch * choice.dp)))


def activation_bytes(choice: Choice) -> float:
    """Bytes of one activation element: 8-bit and 4-bit formats keep activations in 16 bits, but for int8
    networks whose kernels are fused, which hand on 8 bits from layer to layer
    (https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/work-quantized-types.html)."""
    base = _base(choice.precision)
    is_network = choice.task == "infer" and choice.model.objective not in ("causal", "seq2seq", "denoise")
    if base == "int8" and is_network and choice.is_fused:
        return 1.0
    return 4.0 if base in ("fp32", "tf32") else 2.0


def frozen_bytes(choice: Choice) -> tuple[float, float]:
    """Bytes of a frozen element: plain, and quantised (0 where nothing is quantised)."""
    plain = 4.0 if choice.precision.endswith("-mixed") or choice.precision in ("fp32", "tf32") else 2.0
    quantised = bytes_per_element(choice.weight_precision) if choice.weight_precision else plain
    return (2.0 if choice.weight_precision and plain == 2.0 else plain), quantised
