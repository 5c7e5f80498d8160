"""Diffusion models against diffusers: parameters, FLOPs, and what autograd keeps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
]
sys.path.insert(0, str(Path(__file__).parent))

import text_measure  # noqa: E402

from raceline.models import count  # noqa: E402
from raceline.models.families import registry  # noqa: E402
from raceline.models.fields import Fields  # noqa: E402
from raceline.models.graph import Model  # noqa: E402

BATCH, SIDE, LATENT = 2, 128, 16
_UNET = {
    "_class_name": "UNet2DConditionModel", "sample_size": LATENT, "block_out_channels": [32, 64],
    "layers_per_block": 2, "cross_attention_dim": 48, "norm_num_groups": 8, "attention_head_dim": 4,
    "down_block_types": ["CrossAttnDownBlock2D", "DownBlock2D"],
    "up_block_types": ["UpBlock2D", "CrossAttnUpBlock2D"],
}  # fmt: skip
_HEADS = {"num_attention_heads": 4, "attention_head_dim": 16, "num_layers": 3}
_JOINT = {**_HEADS, "joint_attention_dim": 96, "pooled_projection_dim": 32, "in_channels": 16}
_SD3 = {**_JOINT, "_class_name": "SD3Transformer2DModel", "sample_size": LATENT, "caption_projection_dim": 64,
        "pos_embed_max_size": 16}  # fmt: skip
_PATCHES = {**_HEADS, "sample_size": LATENT, "norm_num_groups": 8}
_VIDEO = {"num_frames": 9, "sample_frames": 9, "height": 64, "width": 128, "in_channels": 16}
INSTANCES: dict[str, dict[str, Any]] = {
    "unet": _UNET,
    "unet-xl": {
        **_UNET, "attention_head_dim": [4, 8], "transformer_layers_per_block": [1, 2],
        "use_linear_projection": True, "addition_embed_type": "text_time", "addition_time_embed_dim": 16,
        "projection_class_embeddings_input_dim": 128,
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "UpBlock2D"],
    },
    "sd3": _SD3,
    "sd3.5": {**_SD3, "qk_norm": "rms_norm", "dual_attention_layers": [0]},
    "flux": {**_JOINT, "_class_name": "FluxTransformer2DModel", "num_single_layers": 4, "guidance_embeds": True,
             "axes_dims_rope": [4, 6, 6]},
    "dit": {**_PATCHES, "_class_name": "DiTTransformer2DModel", "num_embeds_ada_norm": 12, "out_channels": 8},
    "pixart": {**_PATCHES, "_class_name": "PixArtTransformer2DModel", "cross_attention_dim": 64,
               "caption_channels": 96},
    "cogvideox": {**_HEADS, **_VIDEO, "_class_name": "CogVideoXTransformer3DModel", "time_embed_dim": 32,
                  "text_embed_dim": 96, "max_sequence_length": 226, "sample_width": 16, "sample_height": 8},
    "wan": {**_HEADS, **_VIDEO, "_class_name": "WanTransformer3DModel", "ffn_dim": 128, "text_dim": 96},
    "vae": {"_class_name": "AutoencoderKL", "sample_size": 64, "block_out_channels": [32, 64],
            "latent_channels": 4, "norm_num_groups": 8,
            "down_block_types": ["DownEncoderBlock2D"] * 2, "up_block_types": ["UpDecoderBlock2D"] * 2},
}  # fmt: skip
SIDES = {"vae": 64, "cogvideox": None, "wan": None}
TEXT = {"sd3": 77 + 256, "sd3.5": 77 + 256, "flux": 512, "pixart": 120}
BF16 = torch.bfloat16


def _theirs(values: dict[str, Any]) -> Any:
    kind = getattr(diffusers, values["_class_name"])
    return kind.from_config(values).to(BF16).train()


def _ours(name: str, values: dict[str, Any]) -> Model:
    return registry.build_model(Fields(values), SIDES.get(name, SIDE))


def _random(*shape: int) -> Any:
    return torch.randn(*shape, dtype=BF16)


def _batch(name: str) -> dict[str, Any]:
    if name == "vae":
        return {"sample": _random(BATCH, 3, 64, 64)}
    step, text = torch.tensor([10, 20]), TEXT.get(name, 77)
    if name.startswith("unet"):
        added = (
            {"text_embeds": _random(BATCH, 32), "time_ids": torch.zeros(BATCH, 6)} if "xl" in name else None
        )
        return {"sample": _random(BATCH, 4, LATENT, LATENT), "timestep": step,
                "encoder_hidden_states": _random(BATCH, 77, 48), "added_cond_kwargs": added}  # fmt: skip
    if name == "flux":
        return {
            "hidden_states": _random(BATCH, 64, 16), "timestep": step, "guidance": _random(BATCH),
            "encoder_hidden_states": _random(BATCH, text, 96), "pooled_projections": _random(BATCH, 32),
            "img_ids": torch.zeros(64, 3), "txt_ids": torch.zeros(text, 3),
        }  # fmt: skip
    if name.startswith("sd3"):
        return {"hidden_states": _random(BATCH, 16, LATENT, LATENT), "timestep": step,
                "encoder_hidden_states": _random(BATCH, text, 96),
                "pooled_projections": _random(BATCH, 32)}  # fmt: skip
    if name == "cogvideox":
        return {"hidden_states": _random(BATCH, 3, 16, 8, 16), "timestep": step,
                "encoder_hidden_states": _random(BATCH, 226, 96)}  # fmt: skip
    if name == "wan":
        return {"hidden_states": _random(BATCH, 16, 3, 8, 16), "timestep": step,
                "encoder_hidden_states": _random(BATCH, 512, 96)}  # fmt: skip
    latent = {"hidden_states": _random(BATCH, 4, LATENT, LATENT), "timestep": step}
    if name == "dit":
        return {**latent, "class_labels": torch.tensor([1, 2])}
    return {**latent, "encoder_hidden_states": _random(BATCH, text, 96),
            "added_cond_kwargs": {"resolution": None, "aspect_ratio": None}}  # fmt: skip


class _Trained(torch.nn.Module):
    """A denoiser with its loss, as training scripts write it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, **batch: Any) -> Any:
        out = self.model(**batch).sample
        if isinstance(self.model, diffusers.AutoencoderKL):
            return out
        return torch.nn.functional.mse_loss(out.float(), torch.zeros_like(out, dtype=torch.float32))


@pytest.mark.parametrize("name", INSTANCES)
def test_parameters_and_flops_equal_those_of_diffusers(name: str) -> None:
    values = INSTANCES[name]
    ours, theirs = _ours(name, values), _theirs(values)
    assert count.parameters(ours) == text_measure.parameters(theirs)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):  # the counter knows no fused one
        measured = text_measure.forward_flops(theirs, _batch(name))
    assert count.flops(ours, BATCH) == pytest.approx(measured, rel=0.01)


@pytest.mark.parametrize("name", INSTANCES)
def test_saved_bytes_are_those_that_autograd_keeps(name: str, record_property: Any) -> None:
    values = INSTANCES[name]
    kept, shapes = text_measure.saved(_Trained(_theirs(values)), _batch(name))
    ours = count.saved_bytes(_ours(name, values), BATCH, precision="bf16")
    record_property("error", ours / kept - 1)
    assert ours == pytest.approx(kept, rel=0.05), shapes
