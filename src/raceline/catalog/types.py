"""What the catalogue knows about, one struct a row. `None` means not known, never zero.

Rates are dense and in 10^12 operations a second (multiply and add counted as two), `*_gbs` in 10^9
bytes a second, one direction where the name says `per_dir`. Dates (`as_of`) are as precise as the
source allows: ``2026-09-25``, ``2026-09``, ``2026``, or ``launch`` for list prices.
"""

from __future__ import annotations

from typing import Literal

import msgspec

AcceleratorKind = Literal["gpu", "tpu", "npu", "ipu", "asic", "dpu", "fpga", "cpu"]
AcceleratorTier = Literal["consumer", "workstation", "datacenter", "edge", "mobile"]


class Accelerator(msgspec.Struct, frozen=True, kw_only=True):
    """One accelerator model.

    16-bit and fp8 rates are those with 32-bit accumulation; `fp16_accum_note` has the higher one
    where 16-bit accumulation is faster. `memory_gib` is the label, which can overstate what is usable
    by 1-7 %. `intra_link_gbs_per_dir` sums all links of one device.
    """

    id: str
    vendor: str
    name: str
    kind: AcceleratorKind
    architecture: str | None = None
    generation_year: int | None = None
    compute_capability: float | None = None
    memory_gib: float | None = None
    memory_type: str | None = None
    memory_bw_gbs: float | None = None
    fp64_tflops: float | None = None
    fp32_tflops: float | None = None
    tf32_tflops: float | None = None
    fp16_dense_tflops: float | None = None
    bf16_dense_tflops: float | None = None
    fp8_dense_tflops: float | None = None
    fp4_dense_tflops: float | None = None
    int8_dense_tops: float | None = None
    int4_dense_tops: float | None = None
    fp16_accum_note: str | None = None
    cuda_cores: int | None = None
    tensor_cores: int | None = None
    sm_count: int | None = None
    l2_mib: float | None = None
    tdp_w: float | None = None
    intra_link: str | None = None
    intra_link_gbs_per_dir: float | None = None
    pcie_gen: int | None = None
    pcie_lanes: int | None = None
    mig_max_instances: int | None = None
    mig_profiles: tuple[str, ...] = ()
    form_factor: str | None = None
    max_per_node: int | None = None
    tier: AcceleratorTier | None = None
    training_capable: Literal["yes", "limited", "no"] | None = None
    frameworks_supported: tuple[str, ...] = ()
    msrp_usd: float | None = None
    source_url: str
    note: str | None = None


class Cpu(msgspec.Struct, frozen=True, kw_only=True):
    """One processor model. `bw_gbs` is the theoretical rate of one socket: plan with 0.8 of it."""

    id: str
    vendor: str
    name: str
    architecture: str | None = None
    generation_year: int | None = None
    tier: str | None = None
    cores: int | None = None
    p_cores: int | None = None
    e_cores: int | None = None
    base_ghz: float | None = None
    boost_ghz: float | None = None
    memory_type: str | None = None
    memory_channels: int | None = None
    memory_mts: int | None = None
    bw_gbs: float | None = None
    avx512: str | None = None
    amx: str | None = None
    fp32_flop_per_cycle_per_core: str | None = None
    fp32_tflops_est: float | None = None
    amx_bf16_tflops_est: float | None = None
    tdp_w: float | None = None
    max_power_w: float | None = None
    pcie_gen: int | None = None
    pcie_lanes: int | None = None
    verified_fields: tuple[str, ...] = ()
    source_url: str
    note: str | None = None


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of link or fabric. `gbs_per_dir` is the printed rate of what `basis` names;
    `allreduce_fraction` is measured bus bandwidth over that rate, at `allreduce_size`."""

    id: str
    name: str
    kind: str
    scope: str
    gbs_per_dir: float | None = None
    basis: str | None = None
    latency_us: float | None = None
    latency_kind: str | None = None
    allreduce_fraction: float | None = None
    allreduce_gpus: str | None = None
    allreduce_size: str | None = None
    p2p_gbs_per_dir: float | None = None
    status: Literal["available", "announced"] = "available"
    source_url: str
    note: str | None = None


class Storage(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of storage. `*_mbs` is 10^6 bytes a second of one `per`; it grows with `scales_with`."""

    id: str
    name: str
    kind: str
    seq_read_mbs: float | None = None
    seq_write_mbs: float | None = None
    rand_read_iops: float | None = None
    rand_write_iops: float | None = None
    latency_us: float | None = None
    per: str | None = None
    scales_with: str | None = None
    measured: str | None = None
    source_url: str
    note: str | None = None


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A price of a machine with `count` accelerators, or of one accelerator of a shared machine."""

    provider: str
    instance: str
    accelerator: str
    count: int
    vcpus: float | None = None
    ram_gib: float | None = None
    interconnect: str | None = None
    region: str
    region_family: str
    tier: Literal["on-demand", "spot", "marketplace", "community"]
    price_hour_usd: float | None = None
    spot_hour_usd: float | None = None
    price_per_accelerator_hour_usd: float | None = None
    as_of: str
    source_url: str
    note: str | None = None


class RetailPrice(msgspec.Struct, frozen=True, kw_only=True):
    """A purchase price: `msrp` is the launch list price, `street` what shops or sellers ask.
    `price_low` and `price_high` are in `currency` (all rows are in USD so far)."""

    device: str
    kind: Literal["msrp", "street"]
    currency: str
    price_low: float
    price_high: float
    condition: str
    as_of: str
    source_url: str
    note: str | None = None


class ElectricityPrice(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars a kWh in a country (ISO code) and sector; multiply by the facility's overhead."""

    region: str
    sector: str
    price_usd_per_kwh: float | None = None
    as_of: str
    source_url: str
    note: str | None = None


class NodeFact(msgspec.Struct, frozen=True, kw_only=True):
    """The usual machine around an accelerator; `accelerator` may be ``*tier`` for all others of it.
    `link_domain` accelerators are joined by `intra_link`; rates are one direction."""

    accelerator: str
    per_node: int | None = None
    link_domain: int | None = None
    intra_link: str | None = None
    intra_is_optional: Literal["yes", "no"] | None = None
    inter_link: str | None = None
    inter_gbs_per_accelerator: float | None = None
    has_peer_access: Literal["yes", "no"] | None = None
    source_url: str
    note: str | None = None


class PrecisionRule(msgspec.Struct, frozen=True, kw_only=True):
    """What a vendor's devices need for a precision: a compute capability, or one of `architectures`
    (``none``: no device has it). Without a rule nothing is refused."""

    precision: str
    vendor: str
    minimum_compute_capability: float | None = None
    architectures: tuple[str, ...] = ()
    source_url: str
    as_of: str
    note: str | None = None


class TrainingHabits(msgspec.Struct, frozen=True, kw_only=True):
    """How a training runtime behaves unless told otherwise: the ZeRO stage it uses with several
    devices, bytes that a logit costs at the peak (the logits and the loss's copies of them), and
    whether each process first reads the whole model into host memory. `logit_bytes` is a planning
    value until calibration replaces it. `experts`: one after the other, cast
    one by one and computed together, or all in one kernel.
    `one_process`: a single process starts the kernels of all devices, one device after the other."""

    zero_stage: int
    logit_bytes: float
    loads_per_rank: bool
    experts: Literal["loop", "each", "grouped"] = "grouped"
    one_process: bool = False


class ServingHabits(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine behaves: GiB that it reserves, the longest prefill pass, whether a batch starts
    and ends together, its host time over vLLM's, and what a cache that grows by concatenation holds
    over its own size, whether one pass computes prompts beside others' tokens, what the server needs for
    a request beside the passes (and how many steps of others pass meanwhile), and whether a request waits
    until its whole answer has room in the cache. `bytes_a_cycle`: of plain weights that its kernels for one
    sequence get through a multiprocessor (0: as many as the memory gives), and `narrow_bytes_a_cycle`
    of those that are widened on the way; `matmul_scale`: time of its own
    kernels for matrix products over a vendor's; `accumulates_half`: they sum in fp16, which GeForce cards do
    twice as fast; `sums_itself`: over ranks, with kernels of its own;
    `narrows_input`: a kernel before each product of narrow weights brings the input to integers.
    `reserve_gib` and `host_scale` are planning values until measured."""

    reserve_gib: float
    chunk_tokens: int
    batch_starts_together: bool
    host_scale: float
    cache_growth: float
    mixes: bool = False
    first_token_ms: float = 0.0
    first_token_steps: float = 0.5
    reserves_answer: bool = False
    bytes_a_cycle: float = 0.0
    narrow_bytes_a_cycle: float = 6.2
    matmul_scale: float = 1.0
    accumulates_half: bool = False
    sums_itself: bool = False
    pads_heads: bool = False
    narrows_input: bool = False


class Runtime(msgspec.Struct, frozen=True, kw_only=True):
    """A framework, engine or server; the one place in the product that states facts on it.

    `vendors` are accelerator vendors with a maintained backend (`any`: it has its own GPU-agnostic
    one); `device_kinds` may hold `cpu`. `precisions` are what matmuls run in, `weight_formats` what
    weights can be stored as. `minimum_compute_capability` maps a precision or feature to the NVIDIA
    capability that it needs in this runtime, beyond what the hardware itself has.
    `architectures` narrows a vendor's devices to these architectures, where stated.

    Memory: `memory_reserve` is `fraction_of_total` (the engine takes that part of the card at start),
    `fraction_of_free` (that part of what is free after loading goes to the KV cache),
    `static_fraction_of_total` (weights and KV cache together), or None (grows as needed);
    `memory_fraction` its default. `context_mib` is what a process holds before the first tensor.
    States: `states` says by precision how training holds them: `amp` (fp32 weights, gradients and
    moments, cast in the forward pass), `master` (16-bit weights and gradients, fp32 master weights and
    moments), `megatron` (as `master`, gradients in fp32), `true` (everything in 16 bits).
    `gradient_dtype` and `optimizer_dtype` are the defaults. `based_on` is the runtime that it is built
    on, which has the facts that are not stated here (see `runtimes.context_mib`). `sources` gives the
    address of single facts by field where it is not `source_url`. `packages` are the distributions on PyPI that
    bring it, by their names there.
    """

    id: str
    name: str
    packages: tuple[str, ...] = ()
    kind: Literal["training framework", "inference runtime", "server", "library", "compiler"]
    tasks: tuple[Literal["train", "infer"], ...]
    vendors: tuple[str, ...] = ()
    device_kinds: tuple[str, ...] = ()
    architectures: dict[str, tuple[str, ...]] = {}
    excluded: tuple[str, ...] = ()
    operating_systems: tuple[str, ...] = ()
    precisions: tuple[str, ...] = ()
    weight_formats: tuple[str, ...] = ()
    minimum_compute_capability: dict[str, float] = {}
    features: tuple[str, ...] = ()
    zero_stages: tuple[int, ...] = ()
    memory_reserve: Literal["fraction_of_total", "fraction_of_free", "static_fraction_of_total"] | None = None
    memory_fraction: float | None = None
    context_mib: float | None = None
    fused_kernels: bool | None = None
    states: dict[str, str] = {}
    training: TrainingHabits | None = None
    serving: ServingHabits | None = None
    gradient_dtype: str | None = None
    optimizer_dtype: str | None = None
    based_on: str | None = None
    aliases: tuple[str, ...] = ()
    licence: str
    source_url: str
    as_of: str
    sources: dict[str, str] = {}
    note: str | None = None
