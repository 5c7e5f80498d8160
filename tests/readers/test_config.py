"""Configs and the table of readers."""

from __future__ import annotations

import contextlib
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import read
from raceline.models.graph import Model
from raceline.models.readers.hf import build
from raceline.present.errors import InputError

FIELDS = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 160, "vocab_size": 100, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=4)
    | st.lists(st.integers(), max_size=2)
)
KINDS = st.sampled_from(
    ["llama", "mixtral", "deepseek_v3", "bert", "t5", "mamba2", "gemma2", "whisper", "llava"]
)


@given(KINDS, st.sampled_from(sorted(FIELDS)), VALUES)
def test_any_config_is_read_or_refused_at_once(kind: str, field: str, value: Any) -> None:
    started = time.process_time()
    with contextlib.suppress(InputError):
        build({**FIELDS, "model_type": kind, field: value}, "x", "x")
    assert time.process_time() - started < 1.0


def test_a_pipeline_takes_the_configs_of_its_components(tmp_path: Path) -> None:
    from raceline.models.readers.hf import _pipeline

    (tmp_path / "vae").mkdir()
    (tmp_path / "vae" / "config.json").write_text('{"latent_channels": 4}')
    merged = _pipeline({"_class_name": "P", "vae": ["diffusers", "AutoencoderKL"]}, tmp_path)
    assert merged["vae"] == {"latent_channels": 4}


def outside(reference: str, image_size: int | None = None) -> Model:
    """A reader that comes from outside."""
    return Model(name=reference, family="mine", architecture="Mine", blocks=())


def test_an_outside_reader_registers_by_suffix_and_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read, "SUFFIXES", dict(read.SUFFIXES))
    monkeypatch.setattr(read, "PREFIXES", dict(read.PREFIXES))
    read.register(".mine", "readers.test_config:outside")
    read.register("mine:", "readers.test_config:outside")
    (tmp_path / "a.mine").write_text(json.dumps({}))
    assert read.read_model(str(tmp_path / "a.mine")).family == "mine"
    assert read.read_model("mine:x").name == "x"
