"""Parameter counts of text configs: equal to the counted ones of the cases, and to hand-computed
differences when one size changes."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError

CASES = (
    Path(os.environ.get("RACELINE_CASES", Path(__file__).parents[2].parent / "shared")) / "cases" / "configs"
)


def _build(config: dict[str, Any]) -> Model:
    return registry.build_model(Fields(config))


def _rows() -> list[Any]:
    if not (CASES / "params.csv").is_file():
        return []
    rows = []
    for row in csv.DictReader((CASES / "params.csv").read_text(encoding="utf-8").splitlines()):
        config = json.loads((CASES / row["file"]).read_text(encoding="utf-8"))
        if config.get("model_type") in registry.TEXT:
            rows.append(pytest.param(config, row, id=row["model"]))
    return rows


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of cases is missing")
@pytest.mark.parametrize(("config", "row"), _rows())
def test_counts_equal_the_cases(config: dict[str, Any], row: dict[str, str]) -> None:
    model = _build(config)
    total, active = int(row["params_total"]), int(row["params_active"])
    if row["total_is"].startswith("counted"):
        assert (count.parameters(model), count.parameters_active(model)) == (total, active)
    else:
        assert count.parameters(model) == pytest.approx(total, rel=0.025)


LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 500, "head_dim": 16,
}  # fmt: skip
MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
DEEPSEEK = {
    **LLAMA, "model_type": "deepseek_v3", "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 8, "moe_intermediate_size": 32, "n_routed_experts": 4,
    "n_shared_experts": 1, "num_experts_per_tok": 2, "first_k_dense_replace": 1,
}  # fmt: skip
BERT = {
    "model_type": "bert", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "vocab_size": 500, "max_position_embeddings": 64,
}  # fmt: skip
T5 = {
    "model_type": "t5", "d_model": 64, "d_ff": 160, "d_kv": 16, "num_heads": 4, "num_layers": 3,
    "num_decoder_layers": 3, "vocab_size": 500,
}  # fmt: skip
MAMBA = {"model_type": "mamba2", "hidden_size": 64, "num_hidden_layers": 3, "vocab_size": 500,
         "state_size": 16, "num_heads": 8, "head_dim": 16}  # fmt: skip
LLAVA = {"model_type": "llava", "text_config": LLAMA, "vision_config": {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
    "image_size": 28, "patch_size": 14}}  # fmt: skip
LAYER = {  # parameters of one more layer, by hand
    "llama": 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 160 + 2 * 64,
    "mixtral": 64 * (64 + 32 + 32) + 64 * 64 + 8 * (3 * 64 * 160 + 64) + 2 * 64,
    "deepseek_v3": (
        64 * 24 + 24 + 24 * 4 * 12 + 64 * (16 + 4) + 16 + 16 * 4 * (8 + 8) + 4 * 8 * 64
        + 4 * (3 * 64 * 32 + 64) + 3 * 64 * 32 + 2 * 64
    ),
    "bert": 4 * (64 * 64 + 64) + 64 * 160 + 160 + 160 * 64 + 64 + 4 * 64,
    "mamba2": 64 * (2 * 128 + 2 * 16 + 8) + 5 * (128 + 2 * 16) + 3 * 8 + 128 + 128 * 64 + 64,
}  # fmt: skip


@pytest.mark.parametrize(
    "config", [LLAMA, MIXTRAL, DEEPSEEK, BERT, MAMBA], ids=lambda config: config["model_type"]
)
@given(more=st.integers(1, 100))
def test_more_layers_add_their_own_parameters(config: dict[str, Any], more: int) -> None:
    before, after = _build(config), _build({**config, "num_hidden_layers": 3 + more})
    assert count.parameters(after) - count.parameters(before) == more * LAYER[config["model_type"]]


@given(more=st.integers(1, 100))
def test_more_t5_decoder_layers_add_self_and_cross_attention(more: int) -> None:
    before, after = _build(T5), _build({**T5, "num_decoder_layers": 3 + more})
    assert count.parameters(after) - count.parameters(before) == more * (8 * 64 * 64 + 2 * 64 * 160 + 3 * 64)


@pytest.mark.parametrize("config", [LLAMA, MIXTRAL, DEEPSEEK], ids=lambda config: config["model_type"])
@given(more=st.integers(1, 100_000))
def test_more_vocabulary_adds_to_table_and_head(config: dict[str, Any], more: int) -> None:
    before, after = _build(config), _build({**config, "vocab_size": 500 + more})
    assert count.parameters(after) - count.parameters(before) == 2 * 64 * more


@given(more=st.integers(1, 100_000))
def test_a_tied_head_is_not_counted_again(more: int) -> None:
    tied = {**LLAMA, "tie_word_embeddings": True}
    assert (
        count.parameters(_build({**tied, "vocab_size": 500 + more})) - count.parameters(_build(tied))
        == 64 * more
    )


@given(more=st.integers(1, 50))
def test_more_experts_leave_the_active_parameters_but_for_the_router(more: int) -> None:
    before, after = _build(MIXTRAL), _build({**MIXTRAL, "num_local_experts": 8 + more})
    assert count.parameters(after) - count.parameters(before) == 3 * more * (3 * 64 * 160 + 64)
    assert count.parameters_active(after) - count.parameters_active(before) == 3 * more * 64


@given(side=st.integers(1, 8))
def test_a_larger_image_table_adds_to_the_tower_alone(side: int) -> None:
    vision = {**LLAVA["vision_config"], "image_size": 14 * (2 + side)}  # type: ignore[dict-item]
    before, after = _build(LLAVA), _build({**LLAVA, "vision_config": vision})
    assert count.parameters(after) - count.parameters(before) == 32 * ((2 + side) ** 2 - 4)


def test_key_heads_that_do_not_divide_the_query_heads_are_refused() -> None:
    config = {
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 7,
        "num_hidden_layers": 32, "intermediate_size": 11008, "vocab_size": 32000,
    }  # fmt: skip
    with pytest.raises(InputError) as caught:
        _build(config)
    assert caught.value.message.id == "models.kv_heads_not_divisor"
