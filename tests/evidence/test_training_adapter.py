"""Published training runs as rows: the words of each source, what is filled in, and what can't be scored."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from raceline import api
from raceline.estimate.scenario import parse
from raceline.evidence.adapters import training, training_vision
from raceline.evidence.exclusions import exclusions
from raceline.evidence.rates import flops_per_token
from raceline.evidence.rows import Measured, Row
from raceline.present.errors import RacelineError

EVIDENCE = Path(__file__).resolve().parents[2] / "evidence"
MOST_UNSCORED = 0.10
STRIDE = 11


@cache
def records(table: str) -> list[dict[str, str]]:
    with (EVIDENCE / f"{table}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@cache
def rows() -> dict[str, Row]:
    found = [training.adapt(record) for record in records("training")]
    found += [training_vision.adapt(record) for record in records("training_vision")]
    return {row.id: row for row in found}


def scenario(row: str) -> dict[str, Any]:
    found = rows()[row].scenario
    assert found is not None
    return found


def setup(row: str) -> dict[str, Any]:
    found: dict[str, Any] = scenario(row)["setup"]
    return found


def measured(row: str) -> dict[str, float]:
    return {item.metric: item.value for item in rows()[row].measured}


def test_the_tables_have_the_columns_that_identify_them() -> None:
    assert records("training")[0].keys() >= training.COLUMNS
    assert records("training_vision")[0].keys() >= training_vision.COLUMNS


def test_every_record_is_a_scenario_or_names_a_rule() -> None:
    for row in rows().values():
        if row.unscored is None:
            assert row.measured and row.scenario is not None
            parse(row.scenario)
        else:
            assert row.unscored in exclusions() and row.scenario is None and not row.measured


def test_scored_rows_can_be_estimated() -> None:
    some = [row.scenario for row in list(rows().values())[::STRIDE] if row.scenario is not None]
    failed = [result for result in api.estimate_all(some) if isinstance(result, RacelineError)]
    assert failed == []


def test_at_most_a_tenth_of_the_training_runs_is_unscored() -> None:
    found = [rows()[record["id"]] for record in records("training")]
    assert sum(row.unscored is not None for row in found) / len(found) <= MOST_UNSCORED


def test_an_image_model_is_unscored_only_where_it_is_not_bundled() -> None:
    found = {rows()[record["id"]].unscored for record in records("training_vision")}
    assert found <= {None, "model_unknown"}


def test_a_run_out_of_memory_is_a_measurement_of_fit() -> None:
    assert rows()["big-0078"].measured == (Measured("fits", 0.0),)
    assert setup("fms-0320")["micro_batch"] == 32 and measured("fms-0320")["fits"] == 0


def test_a_run_without_a_result_is_marked_where_the_cause_is_not_stated() -> None:
    assert rows()["fms-0320"].doubtful == "cause_not_stated"
    assert rows()["big-0078"].doubtful is None


def test_speed_and_both_readings_of_memory_of_one_run() -> None:
    found = measured("fms-0194")
    assert found["tokens_per_s_per_device"] == 3662.129
    assert found["memory_allocated_gib"] == 49.34101
    assert found["memory_device_gib"] == pytest.approx(60685 / 1024)


def test_an_adapter_on_frozen_weights_of_four_bits() -> None:
    assert scenario("fms-0065")["workload"]["method"] == "qlora"
    assert setup("fms-0065")["weight_precision"] == "nf4" and setup("fms-0065")["precision"] == "bf16"
    assert setup("fms-0110")["weight_precision"] == "gptq-int4" and setup("fms-0110")["precision"] == "fp16"


def test_an_example_trains_on_the_size_of_its_data() -> None:
    assert scenario("stu-0001")["workload"]["image_size"] == 512
    assert scenario("stu-0105")["workload"]["image_size"] == 1024


def test_a_checkpoint_setting_that_a_family_ignores_is_read_as_what_runs() -> None:
    assert setup("stu-0059")["recompute"] == "full" and setup("stu-0011")["recompute"] == "selective"
    assert setup("stu-0065")["recompute"] == "none"


def test_a_clip_has_the_frames_of_its_data() -> None:
    assert scenario("stu-0041")["model"] == 'clip:{"model":"hunyuanvideo-1.5","frames":48}'
    assert scenario("stu-0041")["workload"]["image_size"] == 480


def test_full_training_of_a_model_stored_in_fp16_is_mixed_precision() -> None:
    assert setup("cvf-0050")["precision"] == "fp16-mixed"
    assert setup("cvf-0061")["precision"] == setup("cvf-0064")["precision"] == "bf16-true"


def test_weights_that_ramtorch_holds_are_offloaded() -> None:
    assert setup("stu-0025")["offload"] == "all" and setup("stu-0148")["offload"] == "all"


def test_lokr_is_estimated_as_lora_and_says_so() -> None:
    assert scenario("stu-0140")["workload"]["method"] == "lora"
    assert "method=lora for lokr" in rows()["stu-0140"].assumed


def test_int8_under_an_adapter_is_the_weights_and_in_training_the_arithmetic() -> None:
    assert setup("stu-0054")["weight_precision"] == "int8" and setup("stu-0054")["precision"] == "bf16"
    assert setup("gqt-0002")["precision"] == "bf16-true" and "weight_precision" not in setup("gqt-0002")


def test_experts_and_interleaved_stages() -> None:
    found = setup("mbr-0290")
    assert (found["ep"], found["pp"], found["tp"], found["dp"]) == (64, 8, 2, 64)
    assert (found["virtual_stages"], found["schedule"]) == (4, "interleaved")
    assert setup("mbr-0290")["global_batch"] == 8192


def test_a_zero_bubble_schedule_is_read() -> None:
    assert setup("pri-0010")["schedule"] == "zero-bubble" and rows()["pri-0010"].doubtful == "batch"


def test_stages_are_at_most_as_many_as_layers() -> None:
    found = setup("mbr-0211")
    assert found["pp"] * found["virtual_stages"] <= 126
    assert any(item.startswith("virtual_stages=") for item in rows()["mbr-0211"].assumed)


def test_a_batch_per_chip_is_the_ranks_batch_times_its_chips() -> None:
    found = setup("mxt-0048")
    assert (found["tp"], found["micro_batch"], found["global_batch"]) == (16, 2 * 16, 2 * 1024)
    assert rows()["mxt-0048"].framework == "maxtext" and found["runtime"] == "jax"


def test_tflops_become_tokens_by_the_sources_own_count() -> None:
    model, length = "gpt-39.1b-megatron21", 2048
    megatron = 72 * 48 * 8192**2 * (1 + length / (6 * 8192) + 51200 / (12 * 48 * 8192))
    assert flops_per_token(model, length, "full") == pytest.approx(megatron, rel=0.01)
    assert measured("nar-0005")["tokens_per_s_per_device"] == pytest.approx(103.5e12 / megatron, rel=0.01)


def test_tflops_of_an_unknown_count_are_not_scored() -> None:
    assert rows()["lev-0001"].unscored == "convention_unknown"


def test_unpadded_bert_has_its_mean_length() -> None:
    assert scenario("m31-0001")["workload"]["seq_len"] == 256
    assert setup("m31-0001")["micro_batch"] == 768 // 8
    assert scenario("dle-0280")["workload"]["seq_len"] == 512


def test_ranks_of_a_split_model_follow_from_batch_and_accumulation() -> None:
    found = setup("m31-0076")
    assert (found["dp"], found["tp"], found["pp"], found["global_batch"]) == (2048 // 128, 4, 8, 2048)
    assert "tp=4" in rows()["m31-0076"].assumed


def test_a_time_to_train_alone_is_not_scored() -> None:
    assert rows()["mlp-0001"].unscored == "time_to_train_only"


def test_heads_that_a_source_varies_are_in_the_model() -> None:
    assert '"num-attention-heads":96' in scenario("big-0112")["model"]


def test_degrees_in_cores_are_turned_into_chips() -> None:
    assert setup("neu-0001")["tp"] == 32 // 2
    assert setup("neu-0003")["dp"] == 256 and setup("neu-0003")["micro_batch"] == 32


def test_cpu_offload_is_read_and_its_denial_too() -> None:
    assert setup("sta-0001")["offload"] == "optimizer"
    assert "offload" not in setup("sta-0014")
    assert setup("fql-0016")["offload"] == "all" and "offload" not in setup("fql-0001")


def test_a_timm_model_is_one_batch_on_one_card() -> None:
    row = next(row for row in rows().values() if row.model == "vit_base_patch16_224")
    assert row.scenario is not None and row.scenario["hardware"]["count"] == 1
    assert row.scenario["setup"]["precision"] == "fp16-mixed"
    assert row.scenario["workload"]["image_size"] == 224
    assert [item.metric for item in row.measured] == ["samples_per_s_per_device"]


def test_optional_columns_may_be_missing() -> None:
    mine = dict.fromkeys(training.COLUMNS, "") | {
        "id": "mine-1", "source": "mine", "model": "llama-3.1-8b", "accelerator": "h100-sxm", "count": "8",
        "framework": "pytorch", "precision": "bf16", "method": "full", "micro_batch": "1",
        "tokens_per_s_per_gpu": "9000",
    }  # fmt: skip
    row = training.adapt(mine)
    assert row.scenario is not None and row.scenario["setup"]["dp"] == 8
    assert row.measured == (Measured("tokens_per_s_per_device", 9000.0),)
