"""Sequencer and PP-HGNet: what the published sizes don't show."""

from __future__ import annotations

import pytest

from raceline.models.families import hgnet
from raceline.models.fields import Fields
from raceline.present.errors import InputError
from scenarios import read


def test_an_lstm_has_a_matmul_for_each_step_and_direction() -> None:
    stage = next(block for block in read("sequencer2d_s").blocks if block.name == "stage0")
    steps = [op.count for op in stage.ops if op.name.startswith("weight_hh")]
    assert steps == [2, 2 * 31, 2, 2 * 31]


def test_a_stage_of_the_wrong_form_is_refused() -> None:
    with pytest.raises(InputError):
        hgnet.build(Fields({"stages": [[1, 2, 3]], "stem_channels": [16, 16]}, "config.json"))
