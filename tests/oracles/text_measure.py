"""Measures a transformers model: parameters, FLOPs, and the bytes that autograd keeps."""

from __future__ import annotations

import contextlib
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    AutoModelForSeq2SeqLM,
)

BATCH, LENGTH, TARGET = 2, 64, 48
AUTO = {
    "decoder": AutoModelForCausalLM,
    "encoder": AutoModel,
    "seq2seq": AutoModelForSeq2SeqLM,
    "vision": AutoModelForImageTextToText,
}


def built(kind: str, model_type: str, values: dict[str, Any], attention: str, dtype: torch.dtype) -> Any:
    """The model in training mode, without dropout (its masks differ between devices)."""
    config = AutoConfig.for_model(model_type, **values)
    for name in list(vars(config)):
        if "drop" in name and isinstance(getattr(config, name), float):
            setattr(config, name, 0.0)
    config.use_cache = False
    experts = {} if kind == "vision" else {"experts_implementation": "eager"}
    model = AUTO[kind].from_config(config, attn_implementation=attention, dtype=dtype, **experts)
    return model.train()


def inputs(kind: str) -> dict[str, torch.Tensor]:
    """Token ids, with labels where the model has a head."""
    ids = torch.randint(3, 300, (BATCH, LENGTH))
    if kind == "encoder":
        return {"input_ids": ids}
    labels = ids if kind == "decoder" else torch.randint(3, 300, (BATCH, TARGET))
    return {"input_ids": ids, "labels": labels}


def image_inputs(name: str, image_token: int, tokens: int) -> dict[str, torch.Tensor]:
    """One image a sample at the start of its text."""
    ids = torch.randint(10, 300, (BATCH, LENGTH))
    ids[:, :tokens] = image_token
    pixels = torch.randn(BATCH, 3, 56, 56, dtype=torch.bfloat16)
    types = {"token_type_ids": (ids == image_token).long()} if name == "gemma3" else {}
    return {"input_ids": ids, "pixel_values": pixels, "labels": ids, **types}


def parameters(model: Any) -> int:
    """Parameters, tied ones once."""
    return sum(parameter.numel() for parameter in model.parameters())


def forward_flops(model: Any, batch: dict[str, torch.Tensor]) -> int:
    """FLOPs of one forward pass, as torch counts them."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**batch)
    return int(counter.get_total_flops())


def saved(model: Any, batch: dict[str, torch.Tensor]) -> tuple[int, dict[tuple[Any, ...], int]]:
    """Bytes of the storages that autograd keeps (parameters and buffers excluded), and how many there are
    of each shape, to see what differs."""
    own = {part.untyped_storage().data_ptr() for part in [*model.parameters(), *model.buffers()]}
    seen: dict[int, tuple[Any, ...]] = {}
    held: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and storage.data_ptr() not in seen and storage.nbytes():
            seen[storage.data_ptr()] = (storage.nbytes(), str(tensor.dtype), tuple(tensor.shape))
            held.append(tensor)  # a freed storage's address would be used again
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output = model(**batch)
    shapes: dict[tuple[Any, ...], int] = {}
    for entry in seen.values():
        shapes[entry] = shapes.get(entry, 0) + 1
    del output
    return sum(entry[0] for entry in seen.values()), shapes


def tracked_activation_bytes(kind: str, name: str, values: dict[str, Any], fake: bool) -> int:
    """Activation bytes that torch's memory tracker sees after a forward pass. `fake`: on fake tensors,
    which routing by data doesn't allow."""
    from torch._subclasses import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode() if fake else contextlib.nullcontext():
        model = built(kind, name, values, "eager", torch.bfloat16)
        tracker = MemTracker()
        tracker.track_external(model)
        batch = inputs(kind)
        with tracker:
            output = model(**batch)
            snapshot = tracker.get_tracker_snapshot("current")
        del output
    parts = next(iter(snapshot.values()))
    return sum(size for part, size in parts.items() if str(part).endswith("ACT"))
