"""Which family builds which model type. Names map to ``module:function`` and load when used."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from raceline.models import names
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.errors import InputError

Build = Callable[[Fields, "int | None"], Model]

_FAMILIES = "raceline.models.families."
_TEXT_TYPES = {
    "decoder:build": (
        "llama mistral ministral mosaic_gpt qwen qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 gpt2 "
        "gpt_bigcode gpt_neo gpt_neox gptj codegen opt bloom falcon RefinedWeb RefinedWebModel mpt "
        "stablelm stablelm_epoch starcoder2 cohere cohere2 olmo olmo2 olmo3 internlm internlm2 "
        "internlm3 chatglm glm glm4 baichuan yi Yi granite smollm3 nemotron arcee exaone4 seed_oss "
        "hunyuan_v1_dense ernie4_5 minicpm helium palm"
    ),
    "transformer_xl:build": "transfo-xl",
    "decoder:build_assumed": "assumed_llama",
    "moe:build": (
        "mixtral qwen2_moe qwen3_moe llama4_text gpt_oss granitemoe granitemoeshared olmoe phimoe "
        "minimax_m2 dbrx deepseek dots1 glm4_moe hunyuan_v1_moe ernie4_5_moe"
    ),
    "mla:build": "deepseek_v2 deepseek_v3 deepseek_v32 kimi_k2 glm4_moe_lite",
    "gated_delta:build": "qwen3_next qwen3_5_text qwen3_5_moe_text",
    "hybrid:build_mamba": "mamba mamba2 falcon_mamba",
    "hybrid:build": "jamba bamba granitemoehybrid nemotron_h falcon_h1 zamba zamba2",
    "encoder:build": (
        "bert roberta xlm-roberta camembert electra distilbert deberta deberta-v2 modernbert albert "
        "mpnet ernie"
    ),
    "speech:build": "wav2vec2 hubert wavlm audio-spectrogram-transformer",
    "transducer:build": "rnn_t",
    "jasper:build": "jasper",
    "fusion:build": "temporal_fusion_transformer",
    "seq2seq:build_t5": "t5 mt5 umt5",
    "seq2seq:build_bart": "bart mbart pegasus marian blenderbot m2m_100",
    "seq2seq:build_whisper": "whisper",
    "vlm:build": (
        "llava llava_next gemma3 qwen2_vl qwen2_5_vl idefics2 idefics3 smolvlm llama4 mllama internvl "
        "paligemma"
    ),
}
TEXT: dict[str, str] = {
    name: _FAMILIES + target for target, names in _TEXT_TYPES.items() for name in names.split()
}
_IMAGE_TYPES = {
    "resnet:build": ("resnet",),
    "vit:build": ("vit", "deit", "beit"),
    "clip:build": ("clip",),
    "convnext:build": ("convnext", "convnextv2"),
    "regnet:build": ("regnet",),
    "branches:build": ("branches",),
    "chains:build_vgg": ("vgg",),
    "chains:build_densenet": ("densenet",),
    "swin:build": ("swin", "swinv2"),
    "pvt:build": ("pvt", "pvt_v2"),
    "poolformer:build": ("poolformer",),
    "convmixer:build": ("convmixer",),
    "sequencer:build": ("sequencer",),
    "hgnet:build": ("hgnet",),
    "mobilevit:build": ("mobilevit",),
    "pit:build": ("pit",),
    "convit:build": ("convit",),
    "crossvit:build": ("crossvit",),
    "coat:build": ("coat",),
    "cmt:build": ("cmt",),
    "volo:build": ("volo",),
    "visformer:build": ("visformer",),
    "two_towers:build": ("vision-text-dual-encoder",),
    "bridgetower:build": ("bridgetower",),
    "yolo:build": ("yolov5", "yolov8", "yolo11"),
    "detection:build": ("rcnn", "retinanet"),
    "single_shot:build": ("ssd",),
    "plain_unet:build": ("plain_unet",),
    "stylegan:build": ("stylegan2",),
    "alias_free:build": ("stylegan3",),
    "diffusion:build": (
        "StableDiffusionPipeline",
        "StableDiffusionXLPipeline",
        "StableDiffusion3Pipeline",
        "FluxPipeline",
        "PixArtAlphaPipeline",
        "PixArtSigmaPipeline",
        "DiTPipeline",
    ),
    "diffusion:build_text_encoder": (
        "CLIPTextModel",
        "CLIPTextModelWithProjection",
        "T5EncoderModel",
        "clip_text_model",
    ),
    "unet:build": ("UNet2DConditionModel",),
    "mmdit:build_sd3": ("SD3Transformer2DModel",),
    "mmdit:build_flux": ("FluxTransformer2DModel",),
    "dit:build_labelled": ("DiTTransformer2DModel",),
    "dit:build_pixart": ("PixArtTransformer2DModel",),
    "denoisers:build": (
        "QwenImageTransformer2DModel",
        "QwenImagePipeline",
        "LongCatImageTransformer2DModel",
        "LongCatImagePipeline",
        "ChromaTransformer2DModel",
        "ChromaPipeline",
        "AuraFlowTransformer2DModel",
        "AuraFlowPipeline",
        "HiDreamImageTransformer2DModel",
        "HiDreamImagePipeline",
        "LTXVideoTransformer3DModel",
        "LTXPipeline",
        "LTXConditionPipeline",
        "SanaTransformer2DModel",
        "SanaPipeline",
        "SanaVideoTransformer3DModel",
        "SanaVideoPipeline",
        "CosmosTransformer3DModel",
        "Cosmos2TextToImagePipeline",
        "Kandinsky5Transformer3DModel",
        "Kandinsky5T2VPipeline",
        "ZImageTransformer2DModel",
        "ZImagePipeline",
        "Lumina2Transformer2DModel",
        "Lumina2Pipeline",
        "Krea2Transformer2DModel",
        "Krea2Pipeline",
        "ErnieImageTransformer2DModel",
        "ErnieImagePipeline",
        "HunyuanVideo15Transformer3DModel",
        "HunyuanVideo15Pipeline",
    ),
    "vae:build": ("AutoencoderKL",),
    "video:build_cogvideox": ("CogVideoXTransformer3DModel",),
    "video:build_wan": ("WanTransformer3DModel",),
    "recommender:build_dlrm": ("dlrm",),
    "recommender:build_wide_deep": ("wide_deep",),
    "recommender:build_two_tower": ("two_tower",),
    "mask_queries:build": ("maskdino",),
    "mbconv:build": ("mbconv", "efficientnet"),
    "ghostnet:build": ("ghostnet",),
    "rexnet:build": ("rexnet",),
    "shufflenet:build_grouped": ("shufflenet_v1",),
    "shufflenet:build_halved": ("shufflenet_v2",),
    "small_detectors:build_nanodet": ("nanodet",),
    "small_detectors:build_yolov4_tiny": ("yolov4_tiny",),
    "repvgg:build": ("repvgg",),
    "bit:build": ("bit",),
    "hrnet:build": ("hrnet",),
}
IMAGE: dict[str, str] = {
    name: _FAMILIES + target for target, names_ in _IMAGE_TYPES.items() for name in names_
}
OUTSIDE: dict[str, str] = {}


def register(model_type: str, target: str) -> None:
    """Add a family from outside: ``register("my_model", "my_package.families:build")``."""
    OUTSIDE[model_type] = target


def find(model_type: str) -> Build | None:
    """The build function for this model type, or None where no family knows it."""
    target = OUTSIDE.get(model_type) or TEXT.get(model_type) or IMAGE.get(model_type)
    if target is None:
        return None
    module, _, function = target.partition(":")
    build: Build = getattr(import_module(module), function)
    return build


_LLAMA_FIELDS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_KIND_FIELDS = ("model_type", "_class_name", "architecture")
OTHER_READERS = ("module:function", "model.onnx", "model.safetensors")


def build_model(fields: Fields, image_size: int | None = None) -> Model:
    """The model that a config describes. An unknown causal language model that states Llama's fields is
    built as Llama, and its `notes` say so.

    Raises InputError (`models.unknown_architecture`) that names what other files would work.
    """
    kinds = [kind for name in _KIND_FIELDS if (kind := fields.text(name, default=None))]
    for kind in kinds:
        build = find(kind)
        if build is not None:
            return build(fields, image_size)
    named = _bundled(fields.text("architecture", default=None))
    if named is not None:
        return build_model(
            Fields({**named, **fields.values}, fields.where), image_size or _input_side(fields)
        )
    if _looks_like_llama(fields):
        assumed = find("assumed_llama")
        assert assumed is not None
        return assumed(fields, image_size)
    if not kinds:
        raise InputError("models.field_missing", field=fields.where + _KIND_FIELDS[0])
    raise InputError(
        "models.unknown_architecture", field=fields.where + _KIND_FIELDS[0], given=kinds[0][:60],
        readers=", ".join(OTHER_READERS),
    )  # fmt: skip


def _bundled(architecture: str | None) -> dict[str, Any] | None:
    """The bundled config of a timm architecture: its files hold a name and the number of classes."""
    if not architecture:
        return None
    try:
        found = names.find(architecture)
    except InputError:
        return None
    own = {names.plain(names.short(name)) for name in (found.name, *found.aliases)}
    return found.config if names.plain(architecture) in own and "model_type" in found.config else None


def _input_side(fields: Fields) -> int | None:
    """The image size of a timm config: ``{"pretrained_cfg": {"input_size": [3, 224, 224]}}``."""
    part = fields.part("pretrained_cfg", default=None)
    size = part.items("input_size", default=[], longest=4) if part is not None else []
    return size[-1] if size else None


def _looks_like_llama(fields: Fields) -> bool:
    names = fields.items("architectures", default=[])
    is_causal = any(isinstance(name, str) and name.endswith("ForCausalLM") for name in names)
    return is_causal and all(fields.values.get(name) is not None for name in _LLAMA_FIELDS)


def known() -> list[str]:
    """All model types that some family builds, sorted."""
    return sorted({*TEXT, *IMAGE, *OUTSIDE})
