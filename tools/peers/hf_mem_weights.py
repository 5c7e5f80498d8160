"""hf-mem: bytes of the weights as the files' headers list them, and the cache of one length and batch.

Its command reads headers from the Hub. Here its own functions get the same: a header with the model's
parameter count in the row's number format (`parse_safetensors_metadata`), and the model's configuration
with the row's length and batch (`compute_safetensors_kv_cache_size`, its `--experimental` figure). It
knows one device; a model split over several is divided by them.
"""

from __future__ import annotations

from tools.peers.case import Case

NAME = "hf-mem"
DISTRIBUTION = "hf-mem"
REQUIREMENTS = ("hf-mem",)
GROUPS = ("memory-allocated", "memory-device", "fit")
VARIANTS = ("",)
NOTE = "weights and cache of inference; header and configuration given to its own functions"
FORMATS = {
    "bf16": ("BF16", 2),
    "bf16-true": ("BF16", 2),
    "fp16": ("F16", 2),
    "fp32": ("F32", 4),
    "fp8": ("F8_E4M3", 1),
}
CACHE_BYTES_FORMAT = {"BF16": "BF16", "F16": "F16", "F32": "F32", "F8_E4M3": "BF16"}
NEEDED = ("hidden_size", "num_hidden_layers", "num_attention_heads")
GIB = 2**30


def refusal(case: Case) -> str | None:
    """Why it can't be asked; None where it can."""
    if case.workload.get("task") != "infer":
        return "inference only"
    if _format(case) is None:
        return "no header of the quantised file"
    return None


def _format(case: Case) -> tuple[str, int] | None:
    return FORMATS.get(str(case.setup.get("weight_precision") or case.setup.get("precision") or "bf16"))


def answer(case: Case, variant: str) -> float:
    """GiB on a device."""
    from hf_mem.safetensors.metadata import parse_safetensors_metadata

    found = _format(case)
    assert found
    dtype, width = found
    tensor = {
        "dtype": dtype,
        "shape": [case.shape.parameters],
        "data_offsets": [0, case.shape.parameters * width],
    }
    metadata = parse_safetensors_metadata(raw_metadata={"Transformer": {"weight": tensor}})
    total = metadata.bytes_count + _cache_bytes(case, CACHE_BYTES_FORMAT[dtype])
    return float(total / GIB / (case.degree("tp") * case.degree("pp")))


def _cache_bytes(case: Case, dtype: str) -> int:
    from hf_mem.safetensors.kv_cache import compute_safetensors_kv_cache_size

    config, workload = case.shape.config or {}, case.workload
    if not case.shape.is_decoder or not all(name in config for name in NEEDED):
        return 0
    return int(
        compute_safetensors_kv_cache_size(
            config=config,
            cache_dtype=dtype,
            max_model_len=int((workload.get("input_len") or 0) + (workload.get("output_len") or 0)),
            batch_size=int(workload.get("concurrency") or 1),
        )
    )
