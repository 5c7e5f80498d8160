"""Own runs shift and narrow the estimates of their machine, and can be taken back."""

import time
from pathlib import Path
from typing import Any

import pytest

from raceline import api
from raceline.estimate.result import Estimate, Range
from raceline.evidence.loglines import figures
from raceline.present.errors import InputError

RUN: dict[str, Any] = {
    "model": "llama-3.1-8b",
    "workload": {"task": "train", "method": "lora", "seq_len": 2048},
    "hardware": {"accelerator": "rtx-4090", "count": 1},
    "setup": {"runtime": "transformers", "micro_batch": 1, "global_batch": 1, "recompute": "full"},
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RACELINE_HOME", str(tmp_path))
    return tmp_path


def step(estimate: Estimate) -> Range:
    assert estimate.step_time_s is not None
    return estimate.step_time_s


def test_one_run_moves_the_estimate_most_of_the_way() -> None:
    before = step(api.estimate(RUN)).mid
    api.learn(RUN, measured={"step_time_s": 1.5 * before})
    after = step(api.estimate(RUN)).mid
    assert 1.4 * before < after < 1.52 * before


def test_the_range_narrows_with_each_run() -> None:
    def width() -> float:
        found = step(api.estimate(RUN))
        return (found.high - found.low) / found.mid

    widths = [width()]
    for _ in range(3):
        api.learn(RUN, measured={"step_time_s": step(api.estimate(RUN)).mid})
        widths.append(width())
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.75 * widths[0]


def test_another_machine_stays_as_it_was() -> None:
    other = {**RUN, "hardware": {"accelerator": "h100-sxm", "count": 1}}
    before = step(api.estimate(other))
    api.learn(RUN, measured={"step_time_s": 9.0})
    assert step(api.estimate(other)) == before


def test_undo_takes_the_newest_run_back() -> None:
    before = api.estimate(RUN)
    api.learn(RUN, measured={"step_time_s": 9.0})
    api.unlearn()
    assert api.estimate(RUN) == before
    assert api.learned_runs() == ()


def test_a_peak_moves_memory() -> None:
    run = {**RUN, "hardware": {"accelerator": "rtx-a6000", "count": 1}}  # with room to spare
    before = api.estimate(run).memory_gib.total.mid
    api.learn(run, measured={"memory_device_gib": 1.15 * before})
    assert api.estimate(run).memory_gib.total.mid > 1.05 * before


@pytest.mark.parametrize(
    ("line", "metric", "value"),
    [
        (" 12%|#2 | 120/1000 [02:30<18:20,  1.25s/it]", "step_time_s", 1.25),
        ("{'train_runtime': 99.1, 'train_steps_per_second': 2.5}", "step_time_s", 0.4),
        ("elapsed time per iteration (ms): 1234.5 | throughput", "step_time_s", 1.2345),
        ("step: 100  loss:  4.2  memory: 61.20GiB(64.5%)  tps: 5,432  mfu: 41%", "tokens_per_s_per_device", 5432.0),
        ("step: 100  loss:  4.2  memory: 61.20GiB(64.5%)  tps: 5,432  mfu: 41%", "memory_reserved_gib", 61.2),
        ("|  0%   62C    P0   390W / 400W |  61440MiB / 81920MiB |", "memory_device_gib", 60.0),
        ("eval time =  4000.00 ms /   200 runs (   20.00 ms per token,    50.00 tokens per second)", "tpot_ms", 20.0),
        ("Mean TTFT (ms):                          412.50", "ttft_ms", 412.5),
    ],
)  # fmt: skip
def test_log_lines_are_read(line: str, metric: str, value: float) -> None:
    found = {item.metric: item.value for item in figures(line)}
    assert found[metric] == pytest.approx(value)


def test_a_prompt_rate_is_no_decode_rate() -> None:
    assert (
        figures("prompt eval time = 10.0 ms / 100 tokens (0.1 ms per token, 10000.00 tokens per second)")
        == ()
    )


def test_nothing_measured_is_refused() -> None:
    with pytest.raises(InputError):
        api.learn(RUN, log="loss 2.1")
    assert api.learned_runs() == ()


def test_a_scenario_that_cannot_be_is_refused_and_nothing_kept() -> None:
    with pytest.raises(InputError):
        api.learn({**RUN, "model": "no-such-model"}, measured={"step_time_s": 1.0})
    assert api.learned_runs() == ()


def test_a_broken_store_is_named(home: Path) -> None:
    (home / "learned.jsonl").write_text("{]\n")
    with pytest.raises(InputError):
        api.estimate(RUN)


def test_many_own_runs_of_a_table_are_kept(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    source = Path(__file__).parents[2] / "evidence" / "training_vision.csv"
    table.write_text("".join(source.read_text().splitlines(keepends=True)[:4]))
    assert len(api.learn(table)) == 3


@pytest.mark.parametrize(
    "text", ["1" * 100_000, "1," * 50_000, "eval time =" * 9_000, "max allocated" + " " * 20_000]
)
def test_a_hostile_log_is_read_at_once(text: str) -> None:
    started = time.process_time()
    figures(text)
    assert time.process_time() - started < 0.5
