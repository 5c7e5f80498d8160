"""Scenarios: DESIGN's example, what is chosen, and errors that name the field."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raceline.estimate.result import Estimate
from raceline.estimate.run import estimate_many
from raceline.estimate.scenario import parse
from raceline.present.errors import InputError, RacelineError
from raceline.present.text import builtin
from scenarios import DESIGN_EXAMPLE, catalogue, changed, estimate, read


def test_the_example_of_the_design_is_answered_with_every_field_it_names() -> None:
    answer = builtin(estimate(DESIGN_EXAMPLE))
    assert set(answer) >= {
        "schema", "id", "fits", "memory_gib", "host_memory_gib", "disk_gib", "step_time_s", "time_parts_s",
        "throughput", "latency_ms", "mfu", "tflops_per_device", "bound_by", "cost_usd", "energy_kwh", "chosen",
        "evidence", "warnings",
    }  # fmt: skip
    assert set(answer["memory_gib"]) == {
        "total", "needed", "limit", "parameters", "gradients", "optimizer", "activations", "logits", "kv_cache",
        "workspace",
        "reserved",
    }  # fmt: skip
    assert set(answer["time_parts_s"]) == {
        "compute",
        "memory_bound",
        "communication_exposed",
        "pipeline_bubble",
        "optimizer",
        "input",
        "host",
    }
    assert answer["schema"] == "raceline.estimate/1"
    assert json.loads(json.dumps(answer)) == answer


def test_what_is_left_out_is_chosen_and_said() -> None:
    found = estimate({"model": "llama-3.1-8b", "hardware": {"accelerator": "h100-sxm", "count": 8}})
    assert {"precision", "runtime", "micro_batch", "recompute", "seq_len", "dp", "optimizer"} <= set(
        found.chosen
    )
    assert found.fits == "yes"


@pytest.mark.parametrize("model", ["rnn-t-mlperf", "wav2vec2-base"])
def test_a_longer_sample_of_speech_takes_more_time_and_memory(model: str) -> None:
    def train(**workload: int) -> Estimate:
        return estimate(
            {
                "model": model,
                "workload": {"task": "train", "method": "pretrain", **workload},
                "hardware": {"accelerator": "l4"},
                "setup": {"micro_batch": 8, "recompute": "none"},
            }
        )

    usual, short, long = train(), train(seq_len=200), train(seq_len=400)
    assert "seq_len" in usual.chosen
    assert (long.memory_gib.activations or 0) > 1.9 * (short.memory_gib.activations or 0) > 0
    assert long.time_parts_s.compute > 1.9 * short.time_parts_s.compute > 0


def test_an_open_micro_batch_becomes_one_that_fits() -> None:
    open_ = changed(setup={"micro_batch": None, "global_batch": 64, "recompute": None})
    fixed = changed(setup={"micro_batch": 1, "global_batch": 64, "recompute": "full"})
    assert estimate(open_).fits == "yes"
    assert (estimate(open_).mfu or 0) >= (estimate(fixed).mfu or 0)


@pytest.mark.parametrize(
    "part,field,value,name",
    [
        ("setup", "precission", "bf16", "setup.precission"),
        ("setup", "precision", "bf17", "setup.precision"),
        ("setup", "dp", -1, "setup.dp"),
        ("setup", "dp", 7, "setup.dp"),
        ("setup", "pp", 64, "setup.dp"),
        ("workload", "seq_len", "long", "workload.seq_len"),
        ("workload", "tokens", -1.0, "workload.tokens"),
        ("hardware", "count", 10**12, "hardware.count"),
        ("hardware", "accelerator", 7, "hardware.accelerator"),
        ("hardware", "mig_profile", "9g.99gb", "hardware.mig_profile"),
        ("hardware", "interconnect", "string-and-cups", "hardware.interconnect"),
    ],
)
def test_a_wrong_field_is_named(part: str, field: str, value: object, name: str) -> None:
    with pytest.raises(InputError) as caught:
        estimate(changed(**{part: {field: value}}))
    assert caught.value.field == name


def test_an_unknown_field_suggests_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        parse({**DESIGN_EXAMPLE, "setup": {"micro_bach": 1}})
    assert caught.value.message.params["nearest"] == "micro_batch"


def test_bf16_on_a_t4_is_refused_with_the_source() -> None:
    one = changed(
        hardware={"accelerator": "t4", "count": 1}, setup={"dp": 1, "zero_stage": 0, "global_batch": 1}
    )
    with pytest.raises(InputError) as caught:
        estimate(one)
    assert caught.value.field == "setup.precision"
    assert str(caught.value.message.params["source_url"]).startswith("http")


def test_one_bad_scenario_of_several_leaves_the_rest() -> None:
    bad = {**DESIGN_EXAMPLE, "model": "no-such-model"}
    outcomes = estimate_many([DESIGN_EXAMPLE, bad, DESIGN_EXAMPLE], catalogue(), read)
    assert isinstance(outcomes[1], RacelineError)
    assert outcomes[0] == outcomes[2]


def test_scenarios_together_and_alone_have_the_same_answers() -> None:
    several = [changed(setup={"micro_batch": size, "global_batch": 64}) for size in (1, 2, 4, 8)]
    for together, scenario in zip(estimate_many(several, catalogue(), read), several, strict=True):
        alone = estimate(scenario)
        assert isinstance(together, Estimate)
        assert together.memory_gib.total.mid == pytest.approx(alone.memory_gib.total.mid, rel=1e-12)
        assert together.mfu == pytest.approx(alone.mfu, rel=1e-12)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [(part, field) for part in ("workload", "hardware", "setup") for field in DESIGN_EXAMPLE[part]]


@settings(max_examples=200, deadline=None)
@given(where=st.sampled_from(FIELDS), value=json_values)
def test_any_value_in_any_field_is_answered_or_refused(where: tuple[str, str], value: object) -> None:
    part, field = where
    try:
        found = estimate(changed(**{part: {field: value}}))
    except InputError as error:
        assert error.message.id
        return
    assert found.memory_gib.total.mid > 0


@settings(max_examples=50, deadline=None)
@given(data=json_values)
def test_anything_else_than_a_scenario_is_refused(data: object) -> None:
    with pytest.raises(InputError):
        parse(data)
