"""Planning a service: which accelerators, how many replicas, at which precision and batch."""

from __future__ import annotations

import math

import msgspec
import numpy as np
from numpy.typing import NDArray

from raceline.estimate.calibration import model_class, number_word
from raceline.estimate.choose import usual_engine
from raceline.estimate.constants import Efficiency
from raceline.estimate.conventions import Engine, bytes_per_element, engine
from raceline.estimate.devices import FORMATS, Devices, arrange
from raceline.estimate.hardware import Catalogue
from raceline.estimate.latency import ServingTime, serving_time
from raceline.estimate.layout import ModelTable, tabulate
from raceline.estimate.memory import GIB
from raceline.estimate.result import Estimate, Range
from raceline.estimate.run import estimate_many
from raceline.estimate.scenario import Hardware, Scenario, Setup, Workload
from raceline.estimate.serving import Serving, ServingMemory, serving_memory
from raceline.estimate.streaming import is_widened, multiplied_in, narrow_kernels, slowdown, weight_seconds
from raceline.plan.candidates import COUNTS, Candidates, candidates, written
from raceline.plan.request import DEFAULT_USERS, PlanRequest
from raceline.plan.result import Option
from raceline.plan.risk import risks
from raceline.plan.scales import scales
from raceline.plan.wishes import between_nodes

TENSOR = (1, 2, 4, 8)
CONCURRENCY = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
WEIGHTS = ("bf16", "fp8", "awq-int4")
# What llama.cpp reads, on a processor.
PROCESSOR_WEIGHTS = ("bf16", "q8_0", "q4_k_m")
# Planning values: a reader's comfortable speed, the share of a replica's capacity to plan with, and
# how much longer the slowest hundredth waits than the mean.
DEFAULT_TPOT_S, DEFAULT_TTFT_S = 0.1, 3.0
PLANNED_LOAD = 0.7
TAIL = 2.0
MOST_OPTIONS = 48
MOST_DEVICES = 100_000
# A latency that any hardware keeps.
PATIENT_S = 1e9


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """A serving wish in full. `users` at once, or `qps` answers a second; limits in seconds."""

    input_len: int
    output_len: int
    users: int | None
    qps: float | None
    ttft_s: float | None
    tpot_s: float | None
    p99_s: float | None
    assumed: dict[str, object]


class ServingSearch(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one service, unranked. `fewest_devices`: what the load takes at least, where that is known."""

    wish: Wish
    options: tuple[Option, ...]
    candidates: Candidates
    evaluated: int
    fewest_devices: int | None = None


def serving_wish(request: PlanRequest) -> Wish:
    """What is served, with the usual answer where the request is silent."""
    model, assumed = request.model, dict[str, object]()
    generates = model.objective in ("causal", "seq2seq")

    def usual(name: str, given: object, default: object) -> object:
        if given is None:
            assumed[name] = default
        return default if given is None else given

    input_len = usual("input_len", request.input_len, 1024) if model.unit == "token" else 0
    output_len = usual("output_len", request.output_len, 256) if generates else 0
    users = request.users
    if users is None and request.qps is None:
        users = int(str(usual("users", None, DEFAULT_USERS)))
    return Wish(
        input_len=int(str(input_len)),
        output_len=int(str(output_len)),
        users=users,
        qps=request.qps,
        ttft_s=float(str(usual("ttft_s", request.ttft_s, DEFAULT_TTFT_S))) if generates else None,
        tpot_s=float(str(usual("tpot_s", request.tpot_s, DEFAULT_TPOT_S))) if generates else None,
        p99_s=request.p99_s,
        assumed=assumed,
    )


def plan_serving(request: PlanRequest, catalogue: Catalogue, efficiency: Efficiency) -> ServingSearch:
    """The cheapest set-up of each accelerator and tensor-parallel size that keeps the limits."""
    wish = serving_wish(request)
    table = tabulate(request.model, None)
    found = candidates(msgspec.structs.replace(request, task="infer", on_count=None), catalogue, math.inf)
    if not found.pairs:
        return ServingSearch(wish=wish, options=(), candidates=found, evaluated=0)
    devices = arrange(found.devices, efficiency)
    serving, weights = _space(request, wish, devices, table, efficiency)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        memory = serving_memory(table, serving, devices, efficiency)
        time = serving_time(table, serving, memory, devices, efficiency)
        replicas = _replicas(serving, time, wish)
        keeps = _keeps_limits(serving, memory, time, wish, devices)
        needed = serving.tp * replicas
        fewest = int(needed[keeps].min()) if keeps.any() else None
        keeps &= needed <= MOST_DEVICES
    best = _best(serving, replicas, keeps, time, found)
    scenarios = [
        _scenario(request, wish, found, serving, int(row), weights, int(replicas[row]))
        for row in best[:MOST_OPTIONS]
    ]
    estimates = estimate_many(scenarios, catalogue, lambda _reference, _size: request.model, efficiency)
    options = [
        _option(scenario, estimate, found, int(replicas[row]), wish)
        for scenario, estimate, row in zip(scenarios, estimates, best, strict=False)
        if isinstance(estimate, Estimate) and estimate.fits != "no"
    ]
    return ServingSearch(
        wish=wish, options=tuple(options), candidates=found, evaluated=len(serving), fewest_devices=fewest
    )


def _allowed(
    request: PlanRequest,
    wish: Wish,
    devices: Devices,
    table: ModelTable,
    weights: list[str],
    formats: list[str],
) -> tuple[NDArray[np.int64], ...]:
    """Device, tensor parallelism, weights, concurrency and precision of each combination that can be."""
    axes = np.meshgrid(
        np.arange(len(devices)),
        np.array(TENSOR),
        np.arange(len(weights)),
        np.array(CONCURRENCY),
        indexing="ij",
    )
    device, tp, weight, concurrency = (axis.ravel() for axis in axes)
    precision = _precision_of(devices, weights, formats)[device, weight]
    most = max(CONCURRENCY) if wish.users is None else 2 ** math.ceil(math.log2(max(wish.users, 1)))
    heads = table.attention["heads"]
    widest = int(heads.max()) if len(heads) else 1
    is_allowed = (precision >= 0) & (tp <= devices.per_node[device]) & (concurrency <= most)
    is_allowed &= (tp == 1) | (widest % tp == 0)
    if request.on_count:
        is_allowed &= tp <= request.on_count
    return tuple(values[is_allowed] for values in (device, tp, weight, concurrency, precision))


def _space(
    request: PlanRequest, wish: Wish, devices: Devices, table: ModelTable, efficiency: Efficiency
) -> tuple[Serving, list[str]]:
    """Devices x tensor parallelism x weights x concurrency that can be."""
    is_processor = devices.items[0].accelerator.kind == "cpu"
    usual = PROCESSOR_WEIGHTS if is_processor else WEIGHTS
    weights = [request.weight_precision] if request.weight_precision else list(usual)
    if request.model.weight_format and not request.weight_precision:
        weights = [request.model.weight_format]
    formats = [_number_format(name) for name in weights]
    device, tp, weight, concurrency, precision = _allowed(request, wish, devices, table, weights, formats)
    formats = [multiplied_in(*pair, devices.items[0]) for pair in zip(weights, formats, strict=True)]
    kind = devices.items[0].accelerator.kind
    runtime = request.runtime or usual_engine(request.model, kind)
    habits, ones = engine(runtime), np.ones(len(device))
    stored = [bytes_per_element(name) for name in weights]

    def keys(code: int) -> tuple[str, str, bool]:
        number_format, width = divmod(code, len(weights))
        return runtime, number_word(FORMATS[number_format], stored[width]), habits.fused

    scale = scales(
        efficiency.calibration,
        devices,
        device,
        precision * len(weights) + weight,
        keys,
        "infer",
        model_class(request.model),
    )
    serving = Serving(
        device=device, precision=precision, tp=tp.astype(float), pp=ones, ep=ones, expert_tp=tp.astype(float),
        attention_dp=ones, workers=ones, replicas=ones, prefill_workers=0.0 * ones, prefill_tp=ones, prefill_pp=ones,
        prefill_ep=ones, prefill_expert_tp=ones, prefill_attention_dp=ones,
        concurrency=concurrency.astype(float), cached_len=0.0 * ones, input_len=wish.input_len * ones,
        output_len=wish.output_len * ones, max_model_len=0.0 * ones,
        chunk=habits.serving.chunk_tokens * ones, activation_bytes=2.0 * ones,
        weight_bytes=np.array(stored)[weight], plain_weight_bytes=2.0 * ones,
        weight_s=_weight_seconds(devices, weights, formats, habits, efficiency)[device, weight],
        own_sums=float(habits.serving.sums_itself) * ones,
        slowdown=np.array([slowdown(item, habits.serving) for item in devices.items])[device],
        narrow_kernels=np.array(
            [narrow_kernels(*pair, habits.fused, efficiency) for pair in zip(weights, formats, strict=True)]
        )[weight],
        widens=float(habits.serving.narrows_input) * np.array(list(map(is_widened, weights, formats)))[weight],
        cache_bytes=2.0 * ones, engine_fraction=habits.fraction * ones,
        engine_reserve_bytes=habits.serving.reserve_gib * GIB * ones,
        fused=float(habits.fused) * ones, channels_last=float(habits.fused) * ones, mixed=0.0 * ones,
        flash=ones, host_scale=habits.serving.host_scale * ones,
        all_at_once=float(habits.serving.batch_starts_together) * ones, drafts=0.0 * ones,
        mixes=float(habits.serving.mixes) * ones,
        first_token_steps=habits.serving.first_token_steps * ones,
        reserved_answer=(1.0 if habits.serving.reserves_answer else 0.5) * ones,
        first_token_s=habits.serving.first_token_ms / 1000.0 * ones, cache_growth=habits.serving.cache_growth * ones,
        scale=scale,
    )  # fmt: skip
    return serving, [weights[index] for index in weight]


def _weight_seconds(
    devices: Devices, weights: list[str], formats: list[str], habits: Engine, efficiency: Efficiency
) -> NDArray[np.float64]:
    """devices x weights: seconds a weight that reading takes at least."""
    return np.array(
        [
            [
                weight_seconds(item, habits.serving, name, kind, efficiency)
                for name, kind in zip(weights, formats, strict=True)
            ]
            for item in devices.items
        ]
    )


def _number_format(weights: str) -> str:
    return "fp8" if weights == "fp8" else "bf16"


def _precision_of(devices: Devices, weights: list[str], formats: list[str]) -> NDArray[np.int64]:
    """devices x weights: the rate that matmuls run at, fp16 where there is no bf16; -1: none."""
    rows = []
    for index in range(len(devices)):
        peaks = devices.peak_flops[index]
        half = "bf16" if peaks[FORMATS.index("bf16")] > 0 else "fp16"
        names = [half if name == "bf16" else name for name in formats]
        names = [
            multiplied_in(name, number, devices.items[index])
            for name, number in zip(weights, names, strict=True)
        ]
        rows.append([FORMATS.index(name) if peaks[FORMATS.index(name)] > 0 else -1 for name in names])
    return np.array(rows, dtype=np.int64)


def _replicas(serving: Serving, time: ServingTime, wish: Wish) -> NDArray[np.int64]:
    """Copies of the model that carry the load: users over slots, or the rate over what one does."""
    if wish.users is not None and wish.qps is None:
        return np.asarray(np.ceil(wish.users / serving.concurrency), dtype=np.int64)
    answer_s = np.where(
        serving.output_len > 0,
        time.ttft_s + time.tpot_s * np.maximum(serving.output_len - 1.0, 0.0),
        time.batch_s,
    )
    rate = serving.concurrency / answer_s * PLANNED_LOAD
    return np.asarray(np.minimum(np.ceil((wish.qps or 1.0) / rate), 1e9), dtype=np.int64)


def _keeps_limits(
    serving: Serving, memory: ServingMemory, time: ServingTime, wish: Wish, devices: Devices
) -> NDArray[np.bool_]:
    share = np.where(serving.engine_fraction > 0, serving.engine_fraction, 1.0)
    keeps = memory.total <= devices.memory_bytes[serving.device] * share * 0.97
    if wish.ttft_s is not None:
        keeps &= time.ttft_s <= wish.ttft_s
    if wish.tpot_s is not None:
        keeps &= time.tpot_s <= wish.tpot_s
    if wish.p99_s is not None:
        answer_s = np.where(
            serving.output_len > 0, time.ttft_s + time.tpot_s * serving.output_len, time.batch_s
        )
        keeps &= TAIL * answer_s <= wish.p99_s
    return np.asarray(keeps)


def _best(
    serving: Serving,
    replicas: NDArray[np.int64],
    keeps: NDArray[np.bool_],
    time: ServingTime,
    found: Candidates,
) -> NDArray[np.int64]:
    """For each device the rows that are cheapest and those that answer fastest, cheapest first."""
    rows = np.flatnonzero(keeps)
    if not len(rows):
        return rows
    needed = (serving.tp * replicas)[rows]
    per_device = np.array([_least_price(found, index) for index in range(len(found.devices))])
    usd = needed * per_device[serving.device[rows]]
    speed = np.where(serving.output_len > 0, time.tpot_s, time.batch_s)[rows]
    key = serving.device[rows] * 16 + serving.tp[rows].astype(np.int64)
    order = np.lexsort((speed, usd, key))
    _, first = np.unique(key[order], return_index=True)
    chosen = order[first]
    return np.asarray(rows[chosen[np.argsort(usd[chosen], kind="stable")]])


def _least_price(found: Candidates, device: int) -> float:
    prices = [
        price.price_hour_usd / count
        for count in COUNTS
        if count in found.table.counts and (price := found.price(device, count))
    ]
    return min(prices, default=1e9)


def _scenario(
    request: PlanRequest,
    wish: Wish,
    found: Candidates,
    serving: Serving,
    row: int,
    weights: list[str],
    replicas: int,
) -> Scenario:
    accelerator = found.devices[int(serving.device[row])].accelerator
    tp, name = int(serving.tp[row]), FORMATS[int(serving.precision[row])]
    return Scenario(
        id=f"{accelerator.id}x{tp * replicas}",
        model=request.model.name,
        workload=Workload(
            task="infer", input_len=wish.input_len or None, output_len=wish.output_len or None,
            concurrency=int(serving.concurrency[row]), image_size=request.image_size,
        ),
        hardware=Hardware(
            accelerator=written(accelerator), count=tp * replicas, interconnect=between_nodes(request.interconnect)
        ),
        setup=Setup(
            runtime=request.runtime or usual_engine(request.model, accelerator.kind), tp=tp, dp=replicas,
            precision=name, weight_precision=name if weights[row] == "bf16" else weights[row],  # type: ignore[arg-type]
            pp=1, ep=1, kv_precision="bf16" if name == "fp8" else name,  # type: ignore[arg-type]
        ),
    )  # fmt: skip


def _option(scenario: Scenario, estimate: Estimate, found: Candidates, replicas: int, wish: Wish) -> Option:
    ids = [written(device.accelerator) for device in found.devices]
    index = ids.index(scenario.hardware.accelerator)
    device, count = found.devices[index], scenario.hardware.count
    fitting = min((known for known in found.table.counts if known >= count), default=max(found.table.counts))
    price = found.price(index, fitting)
    hourly = price.price_hour_usd * count / fitting if price else None
    risk, why = risks(scenario, estimate, device, price)
    rate = (estimate.throughput.tokens_per_s_per_device or 0.0) * count
    return Option(
        name="",
        accelerator=device.accelerator.id,
        accelerator_name=device.accelerator.name,
        count=count,
        scenario=scenario,
        estimate=estimate,
        price_hour_usd=hourly,
        provider=price.offer.provider if price else None,
        region=price.offer.region if price else None,
        price_as_of=price.offer.as_of if price else None,
        cost_usd=Range(hourly, hourly, hourly) if hourly is not None else None,
        usd_per_million_tokens=hourly / (rate * 3600.0) * 1e6 if hourly and rate else None,
        replicas=replicas,
        risk=risk,
        risks=why,
    )
