"""Denoisers by class: counted cases to the last parameter, layers by hand, hostile configs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count, names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError

_HEADS = {"num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2}
_FLUX = {**_HEADS, "num_single_layers": 2, "in_channels": 16, "joint_attention_dim": 24}
_CROSS = {"num_cross_attention_heads": 2, "cross_attention_head_dim": 8, "cross_attention_dim": 16,
          "caption_channels": 24}  # fmt: skip
SMALL: dict[str, dict[str, Any]] = {
    "QwenImageTransformer2DModel": {**_HEADS, "in_channels": 16, "joint_attention_dim": 24},
    "LongCatImageTransformer2DModel": _FLUX,
    "ChromaTransformer2DModel": {**_FLUX, "approximator_num_channels": 8, "approximator_hidden_dim": 32},
    "AuraFlowTransformer2DModel": {**_HEADS, "num_mmdit_layers": 2, "num_single_dit_layers": 2,
                                   "joint_attention_dim": 24, "pos_embed_max_size": 64},
    "HiDreamImageTransformer2DModel": {**_FLUX, "caption_channels": [24, 32], "text_emb_dim": 24},
    "LTXVideoTransformer3DModel": {**_HEADS, "in_channels": 8, "cross_attention_dim": 16,
                                   "caption_channels": 24},
    "SanaTransformer2DModel": {**_HEADS, **_CROSS, "in_channels": 8},
    "SanaVideoTransformer3DModel": {**_HEADS, **_CROSS, "patch_size": [1, 2, 2]},
    "CosmosTransformer3DModel": {**_HEADS, "text_embed_dim": 24, "adaln_lora_dim": 4, "max_size": [8, 16, 16],
                                 "patch_size": [1, 2, 2]},
    "Kandinsky5Transformer3DModel": {"model_dim": 16, "axes_dims": [2, 2, 4], "ff_dim": 48, "time_dim": 12,
                                     "num_visual_blocks": 2, "num_text_blocks": 1, "in_text_dim": 24},
    "Lumina2Transformer2DModel": {"hidden_size": 16, "num_attention_heads": 4, "num_kv_heads": 2, "num_layers": 2,
                                  "num_refiner_layers": 1, "multiple_of": 8, "cap_feat_dim": 24},
    "Krea2Transformer2DModel": {**_HEADS, "num_key_value_heads": 1, "intermediate_size": 32,
                                "text_hidden_dim": 16, "num_text_layers": 3, "text_num_attention_heads": 2,
                                "text_num_key_value_heads": 2, "text_intermediate_size": 24},
    "ErnieImageTransformer2DModel": {"hidden_size": 16, "num_attention_heads": 2, "num_layers": 2,
                                     "ffn_hidden_size": 40, "in_channels": 8, "text_in_dim": 24},
    "HunyuanVideo15Transformer3DModel": {**_HEADS, "in_channels": 9, "text_embed_dim": 24,
                                         "text_embed_2_dim": 12, "image_embed_dim": 20},
}  # fmt: skip
CONFIGS = [{"_class_name": name, **config} for name, config in SMALL.items()]
PIPELINES = {
    "LTXVideoTransformer3DModel": "LTXPipeline",
    "SanaVideoTransformer3DModel": "SanaVideoPipeline",
    "CosmosTransformer3DModel": "Cosmos2TextToImagePipeline",
    "Kandinsky5Transformer3DModel": "Kandinsky5T2VPipeline",
    "HunyuanVideo15Transformer3DModel": "HunyuanVideo15Pipeline",
}
PUBLISHED = {
    "qwen-image": 20_430_401_088,
    "longcat-image": 6_270_668_864,
    "chroma": 8_899_983_424,
    "auraflow": 6_833_439_744,
    "hidream": 17_105_733_184,
    "ltxvideo-0.9.5": 1_923_385_472,
    "sana": 1_604_462_752,
    "sanavideo-2b": 1_905_841_344,
    "cosmos2-image": 1_956_405_248,
    "kandinsky5-video-2b": 2_007_702_848,
    "lumina2": 2_609_769_152,
    "krea-2": 12_820_073_036,
    "ernie-4.5-image": 8_033_490_048,
    "hunyuanvideo-1.5": 8_326_608_160,
}


def _build(config: dict[str, Any], image_size: int | None = None) -> Model:
    return registry.build_model(Fields(config), image_size)


def _parameters(config: dict[str, Any]) -> int:
    return count.parameters(_build(config))


def _named(name: str) -> dict[str, Any]:
    return {"_class_name": name, **SMALL[name]}


by_class = pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config["_class_name"])


@pytest.mark.parametrize("name", PUBLISHED)
def test_bundled_denoisers_have_their_published_size(name: str) -> None:
    model = _build(names.find(name).config)
    assert count.parameters(model) == PUBLISHED[name]
    assert model.notes == ("models.denoiser_alone",)
    assert model.objective == "denoise"


@by_class
def test_a_larger_image_takes_more_work_and_no_more_parameters(config: dict[str, Any]) -> None:
    small, large = _build(config, 256), _build(config, 512)
    assert count.parameters(small) == count.parameters(large)
    assert count.flops(large) > 1.5 * count.flops(small)
    assert count.saved_bytes(large) > 1.2 * count.saved_bytes(small)


@by_class
def test_a_pipeline_is_its_denoiser_and_says_so(config: dict[str, Any]) -> None:
    name = PIPELINES.get(
        config["_class_name"], config["_class_name"].replace("Transformer2DModel", "Pipeline")
    )
    pipeline = _build({"_class_name": name, "transformer": config, "vae": {}})
    assert count.parameters(pipeline) == _parameters(config)
    assert pipeline.notes == ("models.denoiser_alone",)


@by_class
def test_every_layer_names_the_tensor_that_full_recompute_keeps(config: dict[str, Any]) -> None:
    for block in _build(config).blocks:
        if block.role == "body":
            assert block.boundary in {tensor.name for tensor in block.tensors}


@given(more=st.integers(1, 30))
def test_more_layers_of_qwen_image_add_two_streams_each(more: int) -> None:
    width, config = 16, _named("QwenImageTransformer2DModel")
    stream = (6 + 4 + 4 + 4) * width * width + (6 + 4 + 4 + 1) * width + 2 * 8
    assert _parameters({**config, "num_layers": 2 + more}) - _parameters(config) == more * 2 * stream


@given(more=st.integers(1, 30))
def test_more_layers_of_chroma_have_no_modulation_of_their_own(more: int) -> None:
    width, config = 16, _named("ChromaTransformer2DModel")
    layer = (3 + 4 + 5) * width * width + (3 + 4 + 1) * width + 2 * 8
    assert _parameters({**config, "num_single_layers": 2 + more}) - _parameters(config) == more * layer


@given(more=st.integers(1, 30))
def test_more_experts_of_hidream_add_weights_and_no_work_but_the_router(more: int) -> None:
    config = _named("HiDreamImageTransformer2DModel")
    small, large = _build(config), _build({**config, "num_routed_experts": 4 + more})
    expert, layers = 3 * 16 * 256 + 16, 4
    assert count.parameters(large) - count.parameters(small) == more * layers * expert
    router = 2.0 * 16 * more * (2 * 4096 + 2 * (4096 + 3 * 128))
    assert count.flops(large) - count.flops(small) == router


@given(more=st.integers(1, 30))
def test_more_layers_of_sana_add_convolutions_in_place_of_a_network(more: int) -> None:
    width, inner, config = 16, 40, _named("SanaTransformer2DModel")
    attention = 4 * width * width + width + 4 * (width * width + width)
    network = 2 * inner * (width + 1 + 9 + 1) + inner * width
    layer = attention + network + 6 * width
    assert _parameters({**config, "num_layers": 2 + more}) - _parameters(config) == more * layer


@given(more=st.integers(1, 30))
def test_more_layers_of_lumina_share_keys_and_have_four_norms(more: int) -> None:
    width, inner, config = 16, 64, _named("Lumina2Transformer2DModel")
    attention = 2 * width * width + 2 * width * 8 + 2 * 4
    layer = attention + 3 * width * inner + 4 * width + 4 * width * width + 4 * width
    assert _parameters({**config, "num_layers": 2 + more}) - _parameters(config) == more * layer


@given(more=st.integers(1, 30))
def test_more_layers_of_ernie_share_one_modulation(more: int) -> None:
    width, inner, config = 16, 40, _named("ErnieImageTransformer2DModel")
    layer = 4 * width * width + 2 * 8 + 3 * width * inner + 2 * width
    assert _parameters({**config, "num_layers": 2 + more}) - _parameters(config) == more * layer


def test_linear_attention_grows_with_the_pixels_and_not_with_their_square() -> None:
    config = {**_named("SanaTransformer2DModel"), "max_sequence_length": 1}
    assert count.flops(_build(config, 2048)) < 4.01 * count.flops(_build(config, 1024))


@pytest.mark.parametrize(("name", "per_latent"), [("ltxvideo-0.9.5", 8), ("kandinsky5-video-2b", 4)])
def test_a_video_has_a_latent_frame_for_several_of_its_own(name: str, per_latent: int) -> None:
    config = names.find(name).config
    one, more = (_build({**config, "num_frames": frames}) for frames in (1, 1 + 3 * per_latent))
    assert more.blocks[0].ops[0].rows.fixed == 4 * one.blocks[0].ops[0].rows.fixed
    assert one.unit == "sample"


@by_class
def test_an_image_without_a_single_place_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        _build(config, 1)
    assert caught.value.message.id == "models.image_too_small"


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("QwenImageTransformer2DModel", {"num_layers": 10**9}, "models.field_not_integer"),
        ("ChromaTransformer2DModel", {"approximator_layers": 10**6}, "models.field_not_integer"),
        ("HiDreamImageTransformer2DModel", {"caption_channels": []}, "models.lists_differ"),
        ("HiDreamImageTransformer2DModel", {"num_activated_experts": 5}, "models.field_not_integer"),
        ("CosmosTransformer3DModel", {"img_context_dim_in": 1024}, "models.block_unknown"),
        ("Kandinsky5Transformer3DModel", {"axes_dims": [3, 3, 3]}, "models.heads_not_divisor"),
        ("Lumina2Transformer2DModel", {"num_attention_heads": 3}, "models.heads_not_divisor"),
        ("Krea2Transformer2DModel", {"num_key_value_heads": 5}, "models.field_not_integer"),
        ("SanaTransformer2DModel", {"mlp_ratio": float("nan")}, "models.field_not_number"),
    ],
)
def test_a_wrong_denoiser_is_refused(name: str, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _build({**_named(name), **change})
    assert caught.value.message.id == message


def test_a_pipeline_of_an_unknown_denoiser_is_refused() -> None:
    with pytest.raises(InputError) as caught:
        _build({"_class_name": "QwenImagePipeline", "transformer": {"_class_name": "Other"}})
    assert caught.value.message.id == "models.block_unknown"


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(), st.text(max_size=5),
    st.lists(st.integers(-3, 10**6), max_size=4), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@given(data=st.data())
def test_any_value_in_a_field_builds_or_is_refused(data: st.DataObject) -> None:
    config = data.draw(st.sampled_from(CONFIGS))
    field = data.draw(st.sampled_from(sorted(config)))
    try:
        _build({**config, field: data.draw(ANYTHING)})
    except InputError as error:
        assert error.message.id.startswith("models.")
