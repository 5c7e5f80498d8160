"""Diffusion models: counted cases to the last parameter, differences by hand, what is trained and runs when."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count, names
from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Block, Model
from raceline.present.errors import InputError

CASES = (
    Path(os.environ.get("RACELINE_CASES", Path(__file__).parents[2].parent / "shared")) / "cases" / "configs"
)
UNET: dict[str, Any] = {
    "_class_name": "UNet2DConditionModel", "sample_size": 16, "block_out_channels": [32, 64],
    "layers_per_block": 1, "cross_attention_dim": 48, "norm_num_groups": 8, "attention_head_dim": 4,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
}  # fmt: skip
SD3: dict[str, Any] = {
    "_class_name": "SD3Transformer2DModel", "num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 3,
    "sample_size": 32, "joint_attention_dim": 24, "pooled_projection_dim": 12,
}  # fmt: skip
FLUX: dict[str, Any] = {
    "_class_name": "FluxTransformer2DModel", "num_attention_heads": 2, "attention_head_dim": 8, "num_layers": 2,
    "num_single_layers": 2, "joint_attention_dim": 24, "pooled_projection_dim": 12, "in_channels": 16,
}  # fmt: skip
DIT: dict[str, Any] = {"_class_name": "DiTTransformer2DModel", "num_layers": 2, "num_attention_heads": 2,
                       "attention_head_dim": 8, "shares_embedding": True}  # fmt: skip
VAE: dict[str, Any] = {"_class_name": "AutoencoderKL", "block_out_channels": [32, 64], "sample_size": 64}
CLIP_TEXT: dict[str, Any] = {
    "_class_name": "CLIPTextModel", "hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 77,
}  # fmt: skip
PIPELINE = {"_class_name": "StableDiffusionPipeline", "unet": UNET, "vae": VAE, "text_encoder": CLIP_TEXT}


def _build(config: dict[str, Any], image_size: int | None = None) -> Model:
    return registry.build_model(Fields(config), image_size)


def _parameters(config: dict[str, Any]) -> int:
    return count.parameters(_build(config))


def _of(model: Model, component: str) -> list[Block]:
    return [block for block in model.blocks if block.component == component]


def _rows() -> list[Any]:
    if not (CASES / "params.csv").is_file():
        return []
    rows = []
    for row in csv.DictReader((CASES / "params.csv").read_text(encoding="utf-8").splitlines()):
        config = json.loads((CASES / row["file"]).read_text(encoding="utf-8"))
        if str(config.get("_class_name", "")).endswith("Pipeline"):
            rows.append(pytest.param(config, row, id=row["model"]))
    return rows


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of cases is missing")
@pytest.mark.parametrize(("config", "row"), _rows())
def test_parameters_equal_the_cases_in_all_and_by_component(config: dict[str, Any], row: Any) -> None:
    model = _build(config)
    assert count.parameters(model) == int(row["params_total"])
    for part in row["note"].split("; "):
        name, size = part.removesuffix("M").split(" ")
        held = sum(one.parameters for one in count.rows(model) if one.component == name)
        assert held / 1e6 == pytest.approx(float(size), abs=0.005)


@pytest.mark.skipif(not CASES.is_dir(), reason="the folder of cases is missing")
@pytest.mark.parametrize(("config", "row"), _rows())
def test_bundled_pipelines_equal_the_cases(config: dict[str, Any], row: Any) -> None:
    assert _parameters(names.find(row["model"]).config) == int(row["params_total"])


def test_only_the_denoiser_is_trained_and_runs_each_step() -> None:
    model = _build(PIPELINE)
    assert {block.component for block in model.blocks} == {"unet", "vae", "text_encoder"}
    for block in model.blocks:
        is_denoiser = block.component == "unet"
        assert block.trained == is_denoiser
        assert block.passes == ("step" if is_denoiser else "once")
    assert (model.objective, model.unit) == ("denoise", "image")


def test_training_runs_the_encoder_of_the_autoencoder_and_inference_its_decoder() -> None:
    runs = {block.name.split(".")[0]: block.runs_in for block in _of(_build(PIPELINE), "vae")}
    assert runs == {"encoder": "train", "decoder": "infer"}


def test_a_pipeline_without_an_autoencoder_is_its_other_parts() -> None:
    without = {name: part for name, part in PIPELINE.items() if name != "vae"}
    assert _parameters(PIPELINE) - _parameters(without) == _parameters(VAE)


def test_the_image_size_comes_from_the_denoiser_or_the_workload() -> None:
    assert _build(PIPELINE).image_size == 128
    assert _build(PIPELINE, 256).image_size == 256
    assert _build({**SD3}).image_size == 256


@pytest.mark.parametrize("config", [UNET, SD3, FLUX, VAE], ids=lambda config: config["_class_name"])
def test_a_larger_image_takes_more_work_and_no_more_parameters(config: dict[str, Any]) -> None:
    small, large = _build(config, 128), _build(config, 256)
    assert count.parameters(small) == count.parameters(large)
    assert count.flops(large) > 1.5 * count.flops(small)
    assert count.saved_bytes(large) > 1.2 * count.saved_bytes(small)


@given(more=st.integers(1, 30))
def test_more_single_layers_of_flux_add_their_own_parameters(more: int) -> None:
    width = 16
    layer = (
        (3 * width * width + 3 * width)  # modulation
        + (4 * width * width + 4 * width)  # first feed-forward matrix
        + (5 * width * width + width)  # output of both halves
        + 3 * (width * width + width)  # queries, keys, values
        + 2 * 8  # norms of queries and keys
    )
    after = _parameters({**FLUX, "num_single_layers": 2 + more})
    assert after - _parameters(FLUX) == more * layer


@given(more=st.integers(1, 30))
def test_more_layers_of_stable_diffusion_3_add_two_streams_each(more: int) -> None:
    width = 16
    stream = (6 + 4 + 4 + 4) * width * width + (6 + 4 + 4 + 1) * width
    after = _parameters({**SD3, "num_layers": 3 + more})
    assert after - _parameters(SD3) == more * 2 * stream


@given(more=st.integers(1, 30))
def test_more_layers_of_dit_add_their_own_parameters(more: int) -> None:
    width = 16
    layer = (6 + 4 + 4 + 4) * width * width + (6 + 4 + 4 + 1) * width
    assert _parameters({**DIT, "num_layers": 2 + more}) - _parameters(DIT) == more * layer


@given(more=st.integers(1, 8))
def test_deeper_transformers_in_a_unet_add_their_layers(more: int) -> None:
    """Levels of 32 channels (one downwards, two upwards) and the middle of 64 have transformers."""

    def layer(width: int) -> int:
        attention = 3 * width * width + width * width + width
        cross = 2 * width * width + 2 * 48 * width + width
        feed = 8 * width * width + 8 * width + 4 * width * width + width
        return attention + cross + feed + 6 * width

    after = _parameters({**UNET, "transformer_layers_per_block": 1 + more})
    assert after - _parameters(UNET) == more * (3 * layer(32) + layer(64))


@given(more=st.integers(1, 1000))
def test_a_wider_text_adds_to_keys_and_values_alone(more: int) -> None:
    after = _parameters({**UNET, "cross_attention_dim": 48 + more})
    assert after - _parameters(UNET) == more * 2 * (3 * 32 + 64)


def test_every_body_block_names_the_tensor_that_full_recompute_keeps() -> None:
    for config in (UNET, SD3, FLUX, DIT, VAE):
        for block in _build(config).blocks:
            if block.role == "body":
                assert block.boundary in {tensor.name for tensor in block.tensors}


def test_frozen_parts_keep_nothing_for_backward() -> None:
    assert count.saved_bytes(_build(PIPELINE)) == count.saved_bytes(_build(UNET))


def test_longer_texts_make_both_streams_longer() -> None:
    short, long = _build({**FLUX, "max_sequence_length": 128}), _build(FLUX)
    assert count.flops(long) > count.flops(short)
    assert count.parameters(long) == count.parameters(short)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("dit-xl-2", 675_129_632),
        ("sd3.5-large", 13_721_068_003),
        ("stable-diffusion-v2-mlperf", 865_910_724 + 340_387_840),
        ("cogvideox-2b", 1_693_783_872),
        ("cogvideox-5b", 5_570_283_072),
        ("wan2.1-t2v-1.3b", 1_418_996_800),
        ("wan2.1-t2v-14b", 14_288_491_584),
        ("pixart-alpha", 611_349_152 + 4_762_310_656 + 83_653_863),
    ],
)
def test_bundled_names_have_their_published_size(name: str, parameters: int) -> None:
    assert _parameters(names.find(name).config) == parameters


@pytest.mark.parametrize("name", ["cogvideox-2b", "wan2.1-t2v-1.3b"])
def test_a_video_has_a_latent_frame_for_four_of_its_frames(name: str) -> None:
    config = names.find(name).config
    short, long = (_build({**config, "num_frames": frames, "height": 64, "width": 96}) for frames in (1, 41))
    rows = [model.blocks[0].ops[0].rows.fixed for model in (short, long)]
    assert rows == [4 * 6, 11 * 4 * 6]
    assert short.unit == "sample"


def test_a_denoiser_that_stands_for_its_pipeline_says_so() -> None:
    assert _build(names.find("flux.1-mlperf").config).notes == ("models.denoiser_alone",)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"down_block_types": ["CrossAttnDownBlock2D", "AttnDownBlock2D"]}, "models.block_unknown"),
        ({"down_block_types": ["DownBlock2D"]}, "models.lists_differ"),
        ({"attention_head_dim": 5}, "models.heads_not_divisor"),
        ({"attention_head_dim": [4]}, "models.lists_differ"),
        ({"layers_per_block": -1}, "models.field_not_integer"),
        ({"block_out_channels": [32, 10**9]}, "models.field_not_integer"),
    ],
)
def test_a_wrong_unet_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        _build({**UNET, **change})
    assert caught.value.message.id == message


@pytest.mark.parametrize("config", [UNET, SD3, FLUX, DIT, VAE], ids=lambda config: config["_class_name"])
def test_an_image_without_a_single_place_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        _build(config, 1)
    assert caught.value.message.id == "models.image_too_small"


def test_a_pipeline_with_an_unknown_part_is_refused() -> None:
    for part in ({"unet": {"_class_name": "UNet1DModel"}}, {"text_encoder": {"_class_name": "Other"}}):
        with pytest.raises(InputError) as caught:
            _build({**PIPELINE, **part})
        assert caught.value.message.id == "models.block_unknown"


ANYTHING = st.one_of(
    st.none(), st.booleans(), st.integers(-(10**12), 10**12), st.floats(), st.text(max_size=5),
    st.lists(st.integers(-3, 10**6), max_size=4), st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@given(data=st.data())
def test_any_value_in_a_field_builds_or_is_refused(data: st.DataObject) -> None:
    config = data.draw(st.sampled_from([UNET, SD3, FLUX, DIT, VAE, PIPELINE, CLIP_TEXT]))
    field = data.draw(st.sampled_from(sorted(config)))
    try:
        _build({**config, field: data.draw(ANYTHING)})
    except InputError as error:
        assert error.message.id.startswith("models.")
