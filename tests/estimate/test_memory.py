"""Memory: hand-computed states, phases and properties."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceline.estimate.layout import tabulate
from raceline.estimate.memory import beside, boundary_bytes
from raceline.models import count
from raceline.models.graph import Block, Convolution, Model, fixed
from scenarios import changed, close, estimate, read, shapes

GIB = 2.0**30
LLAMA_8B = 8_030_261_248


def test_pure_bf16_adamw_peaks_at_ten_bytes_a_parameter() -> None:
    one = changed(
        hardware={"accelerator": "b200", "count": 1},
        setup={"dp": 1, "zero_stage": 0, "precision": "bf16-true", "recompute": "full", "global_batch": 1},
        workload={"seq_len": 512},
    )
    memory = estimate(one).memory_gib
    held = memory.parameters + memory.gradients + memory.optimizer
    assert close(held * GIB / LLAMA_8B, 8.0)
    # foreach AdamW holds one more bf16 copy while it updates
    assert close((memory.workspace - 0.1) * GIB / LLAMA_8B, 2.0, 0.01)


def test_zero3_shards_weights_gradients_and_moments_of_mixed_precision() -> None:
    memory = estimate(changed(workload={"seq_len": 512}, setup={"recompute": "full"})).memory_gib
    assert close(memory.parameters * GIB, 4.0 * LLAMA_8B / 8)
    assert close(memory.optimizer * GIB, 8.0 * LLAMA_8B / 8)


def test_megatron_holds_eighteen_bytes_a_parameter_without_a_distributed_optimizer() -> None:
    memory = estimate(
        changed(
            setup={"runtime": "megatron-lm", "zero_stage": 0, "recompute": "full"},
            workload={"seq_len": 512},
            hardware={"accelerator": "b300"},
        )
    ).memory_gib
    held = memory.parameters + memory.gradients + memory.optimizer
    assert close(held * GIB / LLAMA_8B, 18.0)


def test_megatron_deepspeed_in_bf16_holds_gradients_in_both_widths() -> None:
    setup = {"runtime": "megatron-lm+deepspeed", "zero_stage": 1, "recompute": "full"}
    rest = {"workload": {"seq_len": 512}, "hardware": {"accelerator": "b300"}}
    wide = estimate(changed(setup=setup, **rest)).memory_gib
    half = estimate(changed(setup={**setup, "precision": "fp16"}, **rest)).memory_gib
    assert close(wide.gradients * GIB / LLAMA_8B, 6.0) and close(half.gradients * GIB / LLAMA_8B, 2.0)


def test_parts_add_up_to_the_total() -> None:
    memory = estimate(changed()).memory_gib
    parts = (
        memory.parameters, memory.gradients, memory.optimizer, memory.activations, memory.logits,
        memory.workspace, memory.reserved,
    )  # fmt: skip
    assert close(sum(part or 0.0 for part in parts), memory.total.mid, 1e-6)


def test_the_way_back_of_a_convolution_in_fp32_has_gradients_and_a_winograd_workspace() -> None:
    """One 3x3 convolution of 256 channels on 8 x 8 places: input, output, 2.25 times both, 4 times its weights."""
    conv = Convolution(name="conv", rows=fixed(64), k=9 * 256, n=256, input_elements=256.0)
    block = Block(name="block", ops=(conv,))
    model = Model(
        name="one", family="one", architecture="one", blocks=(block,), unit="image", objective="classify"
    )
    table = tabulate(model, "pretrain")
    found = beside(table, shapes(1.0, batch=2.0, activation_bytes=4.0))
    assert close(float(found[0]), 4.0 * (3.25 * 2 * 64 * 512 + 4 * 9 * 256 * 256))
    assert float(beside(table, shapes(1.0, batch=2.0, activation_bytes=2.0))[0]) == 0.0


def test_full_recompute_keeps_one_hidden_vector_a_token_and_layer() -> None:
    model, shape = tabulate(read("llama-3.1-8b"), "full"), shapes(8192.0)
    assert close(float(boundary_bytes(model, shape)[0]), 32 * 8192 * 4096 * 2.0)


def test_qlora_holds_the_base_in_about_half_a_byte_a_weight() -> None:
    memory = estimate(
        changed(
            workload={"method": "qlora", "seq_len": 512},
            hardware={"accelerator": "rtx-4090", "count": 1},
            setup={"dp": 1, "zero_stage": 0, "runtime": "transformers", "lora_rank": 8, "global_batch": 1},
        )
    ).memory_gib
    embedding_and_head = 2 * 128_256 * 4096
    expected = (LLAMA_8B - embedding_and_head) * 4.5 / 8 + embedding_and_head * 2.0
    assert close(memory.parameters * GIB, expected, 0.01)


def test_mixed_precision_lora_keeps_its_frozen_base_in_fp32() -> None:
    lora = {"method": "lora", "seq_len": 512}
    one = {"dp": 1, "zero_stage": 0, "runtime": "litgpt", "lora_rank": 8, "global_batch": 1}
    hardware = {"accelerator": "a100-sxm-80gb", "count": 1}
    mixed = estimate(changed(workload=lora, hardware=hardware, setup={**one, "precision": "bf16-mixed"}))
    pure = estimate(changed(workload=lora, hardware=hardware, setup={**one, "precision": "bf16-true"}))
    assert close(mixed.memory_gib.parameters, 2.0 * pure.memory_gib.parameters)


def test_a_grouped_query_cache_holds_two_vectors_a_kv_head_and_layer() -> None:
    serving = {
        "model": "llama-3.1-8b",
        "workload": {"task": "infer", "input_len": 1000, "output_len": 24, "concurrency": 4},
        "hardware": {"accelerator": "h100-sxm"},
    }
    cache = estimate(serving).memory_gib.kv_cache
    assert cache is not None
    assert close(cache * GIB, 4 * 1024 * 32 * 2 * 8 * 128 * 2.0)


def test_a_latent_cache_is_far_smaller_than_its_heads() -> None:
    serving = {
        "model": "deepseek-v3",
        "workload": {"task": "infer", "input_len": 1000, "output_len": 24, "concurrency": 1},
        "hardware": {"accelerator": "h200-sxm", "count": 8},
        "setup": {"tp": 8},
    }
    cache = estimate(serving).memory_gib.kv_cache
    assert cache is not None
    assert close(cache * GIB, 1024 * 61 * (512 + 64) * 2.0)


def test_host_memory_is_the_limit_where_it_is_short() -> None:
    scenario = changed(
        hardware={"host_memory_gib": 64.0, "accelerator": "h100-sxm"},
        setup={"offload": "optimizer", "zero_stage": 3},
    )
    found = estimate(scenario)
    assert found.fits == "no"
    assert "estimate.exceeds_host_memory" in [warning.id for warning in found.warnings]


def test_what_does_not_fit_names_the_smallest_change_that_does() -> None:
    found = estimate(changed(setup={"micro_batch": 4, "global_batch": 32}))
    remedy = next(warning for warning in found.warnings if warning.id == "estimate.remedy")
    assert found.fits == "no"
    assert remedy.params["needed_gib"] < remedy.params["limit_gib"]


@settings(max_examples=25, deadline=None)
@given(count=st.sampled_from([1, 2, 4, 8, 16, 32]), zero=st.sampled_from([0, 1, 2, 3]))
def test_more_accelerators_never_raise_state_bytes(count: int, zero: int) -> None:
    def states(devices: int) -> float:
        setup = {
            "dp": devices,
            "zero_stage": zero if devices > 1 else 0,
            "global_batch": 64,
            "recompute": "full",
        }
        memory = estimate(changed(hardware={"count": devices}, setup=setup)).memory_gib
        return memory.parameters + (memory.optimizer or 0.0)

    assert states(2 * count) <= states(count) * (1 + 1e-9) or count == 1


@settings(max_examples=25, deadline=None)
@given(length=st.integers(64, 60_000), more=st.integers(1, 60_000))
def test_longer_context_never_lowers_memory_or_time(length: int, more: int) -> None:
    short = estimate(changed(workload={"seq_len": length}))
    long = estimate(changed(workload={"seq_len": length + more}))
    assert long.memory_gib.total.mid >= short.memory_gib.total.mid
    assert long.step_time_s is not None and short.step_time_s is not None
    assert long.step_time_s.mid >= short.step_time_s.mid


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_higher_zero_stage_never_needs_more_state_memory(stage: int) -> None:
    def total(zero: int) -> float:
        return estimate(changed(setup={"zero_stage": zero, "recompute": "full"})).memory_gib.total.mid

    assert total(stage) <= total(stage - 1) * 1.001


def test_recommender_tables_are_spread_over_all_devices_once() -> None:
    eight = {"model": "dlrm-dcnv2-mlperf", "hardware": {"accelerator": "h100-sxm", "count": 8}}
    memory = estimate({**eight, "setup": {"global_batch": 65_536, "zero_stage": 3}}).memory_gib
    tables = count.parameters(read("dlrm-dcnv2-mlperf"))
    assert close(memory.parameters * GIB, tables * 2.0 / 8, 0.02)


def test_training_a_pipeline_leaves_its_decoder_idle_but_loaded() -> None:
    model = read("stable-diffusion-xl-base-1.0")
    assert close(tabulate(model, "full").parameters.sum(), count.parameters(model), 1e-6)
    training = {op.name for block in model.blocks if block.runs_in == "infer" for op in block.ops}
    assert training
