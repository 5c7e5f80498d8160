"""Step time: what must hold whatever the constants are, and parts that add up."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from raceline.estimate import constants
from raceline.estimate.collectives import group
from raceline.estimate.cost import cost_usd, cost_usd_per_million_tokens, training_steps
from raceline.estimate.layout import tabulate
from raceline.estimate.op_time import time_ops
from raceline.estimate.result import Range
from raceline.models import count
from raceline.present.errors import InputError
from scenarios import ONE, changed, close, devices, estimate, read, shapes


def test_parts_of_a_step_add_up_to_it() -> None:
    found = estimate(changed(setup={"tp": 2, "dp": 4, "pp": 1}))
    assert found.time_parts_s is not None and found.step_time_s is not None
    assert close(sum(msgspec.structs.astuple(found.time_parts_s)), found.step_time_s.mid, 1e-6)


def test_forward_flops_are_twice_the_matmul_weights_a_token_plus_half_of_the_attention_square() -> None:
    model = read("llama-3.1-8b")
    times = time_ops(tabulate(model, "full"), shapes(4096.0), devices("h100-sxm"), constants.load())
    weights = count.parameters(model) - 128_256 * 4096 - (2 * 32 + 1) * 4096
    attention = 32 * 4 * 32 * 128 * 4096 * (4096 + 1) / 2
    assert close(float(times.flops_forward.sum()), 2.0 * weights * 4096 + attention, 1e-6)


def test_backward_of_full_training_counts_twice_the_forward_flops() -> None:
    table = tabulate(read("llama-3.1-8b"), "full")
    times = time_ops(table, shapes(2048.0), devices("h100-sxm"), constants.load())
    assert close(float(times.flops_backward.sum()), 2.0 * float(times.flops_forward.sum()), 1e-6)


def test_a_frozen_base_saves_the_weight_gradients() -> None:
    model = read("llama-3.1-8b")
    full = time_ops(tabulate(model, "full"), shapes(2048.0), devices("h100-sxm"), constants.load())
    lora = time_ops(tabulate(model, "lora", 8), shapes(2048.0), devices("h100-sxm"), constants.load())
    ratio = float(lora.flops_backward.sum() / full.flops_backward.sum())
    assert 0.5 < ratio < 0.65


def test_sliding_windows_bound_the_attention() -> None:
    model = read("mistral-7b-v0.1")
    long = time_ops(tabulate(model, "full"), shapes(32_768.0), devices("h100-sxm"), constants.load())
    twice = time_ops(tabulate(model, "full"), shapes(65_536.0), devices("h100-sxm"), constants.load())
    assert float(twice.attention_forward_s.sum()) < 2.2 * float(long.attention_forward_s.sum())


@pytest.mark.parametrize("slow,fast", [("a100-pcie-40gb", "a100-sxm-80gb"), ("h100-sxm", "h200-sxm")])
def test_higher_bandwidth_never_slows(slow: str, fast: str) -> None:
    setup = {"dp": 1, "zero_stage": 0, "global_batch": 1}
    times = [
        estimate(changed(hardware={"accelerator": name, "count": 1}, setup=setup)).step_time_s
        for name in (slow, fast)
    ]
    assert times[0] is not None and times[1] is not None
    assert times[1].mid <= times[0].mid


def test_tensor_parallelism_over_pcie_costs_more_communication_than_over_nvlink() -> None:
    setup = {"dp": 1, "tp": 4, "zero_stage": 0, "global_batch": 8, "micro_batch": 1}
    hardware = {"count": 4, "per_node": 4}
    nvlink = estimate(
        changed(hardware={**hardware, "accelerator": "a100-sxm-80gb"}, setup=setup)
    ).time_parts_s
    pcie = estimate(changed(hardware={**hardware, "accelerator": "l40s"}, setup=setup)).time_parts_s
    assert nvlink is not None and pcie is not None
    assert pcie.communication_exposed > 10 * nvlink.communication_exposed


def test_a_pipeline_of_four_idles_three_micro_batches() -> None:
    found = estimate(
        changed(
            setup={
                "dp": 2,
                "pp": 4,
                "zero_stage": 0,
                "micro_batch": 1,
                "global_batch": 32,
                "runtime": "megatron-lm",
            }
        )
    )
    parts, step = found.time_parts_s, found.step_time_s
    assert parts is not None and step is not None
    busy = step.mid - parts.pipeline_bubble - parts.optimizer
    assert parts.pipeline_bubble / busy == pytest.approx(3 / 16, rel=0.05)


def test_a_ring_all_reduce_moves_twice_n_minus_one_over_n() -> None:
    found = group(devices("h100-sxm"), np.zeros(1, dtype=np.int64), 8.0 * ONE, ONE, constants.load())
    expected = 2.0 * 7.0 / 8.0 * 1e9 / (found.link_bytes_s * found.curves.rate8[0, 0])
    assert np.allclose(found.all_reduce(1e9 * ONE) - found.start_s("all_reduce"), expected, rtol=1e-3)


def test_a_group_of_one_needs_no_time() -> None:
    found = group(devices("h100-sxm"), np.zeros(1, dtype=np.int64), ONE, ONE, constants.load())
    assert found.all_reduce(1e9 * ONE)[0] == 0.0


def test_doubling_the_price_doubles_the_cost() -> None:
    duration = Range(3600.0, 7200.0, 10_800.0)
    once, twice = cost_usd(duration, 2.0), cost_usd(duration, 4.0)
    assert once is not None and twice is not None
    assert (once.mid, twice.mid) == (4.0, 8.0)


def test_a_million_tokens_cost_the_seconds_that_they_take() -> None:
    found = cost_usd_per_million_tokens(Range(0.5, 1.0, 2.0), 1000.0, 2, 7.2)
    # 500 s of both devices at 0.002 $/s
    assert found is not None and (found.low, found.mid, found.high) == pytest.approx((0.5, 1.0, 2.0))


def test_the_tokens_asked_for_cost_their_share_of_a_million() -> None:
    found = estimate(changed())
    each, whole = found.cost_usd_per_million_tokens, found.cost_usd
    assert each and whole and close(whole.mid, each.mid * 1e9 / 1e6, 1e-6)


def test_a_billion_tokens_are_so_many_steps() -> None:
    assert training_steps(1e9, None, 8192, 8) == pytest.approx(1e9 / 8192 / 8)


def test_ranges_hold_their_own_mid() -> None:
    found = estimate(changed())
    for value in (found.memory_gib.total, found.step_time_s, found.cost_usd):
        assert value is not None and value.low <= value.mid <= value.high


def test_a_mig_slice_is_slower_and_smaller_than_its_card() -> None:
    serving = {
        "model": "qwen2.5-0.5b",
        "workload": {"task": "infer"},
        "hardware": {"accelerator": "a100-sxm-80gb"},
    }
    whole = estimate(serving)
    slice_ = estimate({**serving, "hardware": {"accelerator": "a100-sxm-80gb", "mig_profile": "1g.10gb"}})
    assert slice_.memory_gib.limit < whole.memory_gib.limit / 7
    assert slice_.latency_ms.tpot is not None and whole.latency_ms.tpot is not None
    assert slice_.latency_ms.tpot > whole.latency_ms.tpot


def test_decoding_reads_every_weight_once_a_token() -> None:
    serving = {
        "model": "llama-3.1-8b",
        "workload": {"task": "infer", "input_len": 16, "output_len": 16, "concurrency": 1},
        "hardware": {"accelerator": "h100-sxm"},
    }
    tpot = estimate(serving).latency_ms.tpot
    assert tpot is not None
    weights_ms = (8_030_261_248 - 128_256 * 4096) * 2 / 3350e9 * 1000
    assert weights_ms < tpot < 2.5 * weights_ms


def _first_token_ms(**workload: int) -> float:
    found = estimate({
        "model": "llama-3-8b", "hardware": {"accelerator": "rtx-4090"},
        "workload": {"task": "infer", "input_len": 2048, "output_len": 1, "concurrency": 1, **workload},
        "setup": {"runtime": "llama.cpp", "weight_precision": "q4_k_m"},
    }).latency_ms.ttft  # fmt: skip
    assert found is not None
    return found


def test_a_prompt_on_a_filled_cache_takes_longer_but_not_as_long_as_computing_both() -> None:
    plain = _first_token_ms()
    assert plain < _first_token_ms(cached_len=6144) < _first_token_ms(input_len=8192)


def test_a_cached_prompt_fills_memory_like_a_computed_one() -> None:
    def cache(**lengths: int) -> float:
        workload = {"task": "infer", "output_len": 1, "concurrency": 1, **lengths}
        scenario = {"model": "llama-3-8b", "hardware": {"accelerator": "rtx-4090"}, "workload": workload}
        return estimate({**scenario, "setup": {"runtime": "llama.cpp"}}).memory_gib.kv_cache or 0.0

    assert cache(input_len=2048, cached_len=6144) == cache(input_len=8192)


def test_a_slow_disk_is_waited_for_and_named() -> None:
    slow = changed(workload={"sample_bytes": 1e9}, hardware={"read_mbs": 100.0})
    found = estimate(slow)
    assert found.time_parts_s is not None and found.step_time_s is not None
    assert found.bound_by == "input"
    assert found.step_time_s.mid == pytest.approx(8 * 1e9 / 100e6)


def test_a_fast_disk_costs_nothing() -> None:
    fast = estimate(changed(workload={"sample_bytes": 1e5}, hardware={"read_mbs": 5000.0})).time_parts_s
    assert fast is not None and fast.input == 0.0


def test_slow_preparation_of_samples_is_waited_for() -> None:
    found = estimate(changed(workload={"sample_cpu_s": 1000.0}, setup={"loaders": 5}))
    assert found.bound_by == "input" and found.step_time_s is not None
    assert found.step_time_s.mid == pytest.approx(200.0)


def test_the_longest_sample_decides_memory_and_the_usual_one_time() -> None:
    short, long = (estimate(changed(workload={"seq_len": length})) for length in (2048, 8192))
    mixed = estimate(changed(workload={"seq_len": 2048, "longest_sample": 8192}))
    assert mixed.memory_gib.total.mid == pytest.approx(long.memory_gib.total.mid)
    assert mixed.step_time_s is not None and short.step_time_s is not None
    assert mixed.step_time_s.mid == pytest.approx(short.step_time_s.mid)


def test_an_offer_sets_the_price_and_an_unknown_one_is_refused() -> None:
    aws = estimate(changed(hardware={"offer": "aws"})).cost_usd
    any_ = estimate(changed()).cost_usd
    assert aws is not None and any_ is not None and aws.mid > any_.mid
    with pytest.raises(InputError) as caught:
        estimate(changed(hardware={"offer": "nobody"}))
    assert caught.value.field == "hardware.offer"
