"""The fit finds factors that are there, leaves out what it must, and is stored as it was found."""

from __future__ import annotations

import numpy as np
import pytest

from raceline.accuracy import fit
from raceline.accuracy.constants import encode, pack, stored
from raceline.accuracy.folds import folds, kinds_by_group, label
from raceline.accuracy.groups import family_of
from raceline.accuracy.observations import Observation
from raceline.estimate.calibration import KINDS, MATMUL, Calibration, Keys, of_constants, scopes
from raceline.evidence.rows import Row

KEYS = Keys(
    task="train", model_class="dense", generation="Hopper", accelerator="h100-sxm", runtime="megatron-lm",
    numbers="16bit", method="pretrain", is_fused=True,
)  # fmt: skip


def observation(source: str, number: int, family: str = "llama", keys: Keys = KEYS) -> Observation:
    row = Row(id=f"{source}-{number}", table="training", source=source, source_url="", scenario={})
    return Observation(row, number, keys, "step_time_s", 1.0, "train-dense-16bit", family)


def items(sources: int = 4, rows: int = 30) -> list[Observation]:
    return [
        observation(f"s{source}", source * rows + row) for source in range(sources) for row in range(rows)
    ]


def slopes(count: int) -> np.ndarray:
    found = np.zeros((count, len(KINDS)))
    found[:, MATMUL] = 1.0
    return found


def told(solver: fit.Solver, values: np.ndarray) -> float:
    """The log factor of a run in all scopes of KEYS."""
    return float(
        sum(value for (scope, _), value in zip(solver.names, values, strict=True) if scope in scopes(KEYS))
    )


def test_a_common_factor_is_found() -> None:
    known = items()
    (solver,) = fit.solvers_of(known, np.full(len(known), 0.2), slopes(len(known)), {})
    assert told(solver, solver.whole()) == pytest.approx(0.2, abs=0.06)


def test_rows_far_off_have_no_say() -> None:
    known, residual = items(), np.full(120, 0.1)
    residual[::10] = 4.0
    (solver,) = fit.solvers_of(known, residual, slopes(120), {})
    assert told(solver, solver.whole()) < 0.15


def test_a_source_left_out_does_not_move_its_fold() -> None:
    known = items()
    residual = np.array([0.15 if item.row.source == "s0" else 0.0 for item in known])
    (solver,) = fit.solvers_of(known, residual, slopes(len(known)), {})
    out = np.array([item.row.source == "s0" for item in known])
    assert told(solver, solver.without(out)) == pytest.approx(0.0, abs=1e-6)
    assert told(solver, solver.whole()) > 0.01


def test_many_rows_of_one_source_do_not_outvote_others() -> None:
    known = [*items(4, 10), *(observation("large", 1000 + row) for row in range(400))]
    residual = np.array([0.4 if item.row.source == "large" else 0.0 for item in known])
    (solver,) = fit.solvers_of(known, residual, slopes(len(known)), {})
    assert told(solver, solver.whole()) < 0.2


def test_groups_are_cut_by_source_only_where_three_have_five_rows() -> None:
    assert kinds_by_group(items(3, 5)) == {"train-dense-16bit": ("source",)}
    assert kinds_by_group(items(2, 50)) == {"train-dense-16bit": ("family", "accelerator")}
    assert kinds_by_group([*items(2, 5), *items(3, 4)][:-4]) == {
        "train-dense-16bit": ("family", "accelerator")
    }


def test_a_fold_leaves_out_all_rows_of_its_name() -> None:
    known = items(3, 5)
    found = folds(known, kinds_by_group(known))
    assert set(found) == {"source=s0", "source=s1", "source=s2"}
    for name, flags in found.items():
        assert [label(item, "source") == name for item in known] == flags.tolist()


def test_constants_come_back_as_they_were_stored() -> None:
    names = [("area=train/text", "matmul"), ("class=train/text/dense", "all")]
    packed = pack(names, np.array([0.1234, 0.0]), {"source=a": np.array([0.1234, -0.05])})
    assert packed.of(None) == {"area=train/text": {"matmul": 0.1234}}
    assert packed.of("source=a")["class=train/text/dense"]["all"] == pytest.approx(-0.05)
    assert encode(packed) == encode(packed)


def test_factors_of_scopes_multiply_and_unknown_scopes_change_nothing() -> None:
    found = of_constants({"area=train/text": {"matmul": 0.1}, "class=train/text/dense": {"all": 0.2}})
    assert found.scale(KEYS)[MATMUL] == pytest.approx(np.exp(0.3))
    assert Calibration().scale(KEYS) == (1.0,) * len(KINDS)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("meta-llama/Llama-3.1-70B", "llama"),
        ("resnet50-v1.5", "resnet"),
        ("deepseek-ai/DeepSeek-R1", "deepseek"),
    ],
)
def test_the_family_is_the_name_s_first_word(name: str, family: str) -> None:
    assert family_of(name) == family


def test_every_stored_constant_is_bounded() -> None:
    known = stored()
    assert len(known.folds) > 100
    for fold in (None, *known.folds):
        for kinds in known.of(fold).values():
            assert all(abs(value) <= fit.LARGEST for value in kinds.values())
