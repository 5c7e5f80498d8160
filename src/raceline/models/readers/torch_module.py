"""A PyTorch ``module:function``: built and run on the meta device, because the user named it.

The function takes no arguments and returns a module, or (module, inputs), or (module, inputs, named
inputs). Inputs that are left out are made from the first layer that has weights. Extra `torch`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

from raceline.models.graph import Model
from raceline.models.readers import trace
from raceline.present.errors import InputError, MissingExtraError

DEFAULT_TOKENS = 128
DEFAULT_IMAGE_SIZE = 224
_MOST_STORED_ELEMENTS = 50_000_000


def read(reference: str, image_size: int | None = None) -> Model:
    """The model that ``module:function`` builds."""
    try:
        import torch
    except ImportError:
        raise MissingExtraError("models.extra_missing", extra="torch", package="torch") from None
    made = _built(named_function(reference), reference)
    parts = made if isinstance(made, tuple) else (made,)
    module = parts[0]
    if not isinstance(module, torch.nn.Module):
        raise InputError("models.function_result", field="model", given=reference, type=type(module).__name__)
    inputs = parts[1] if len(parts) > 1 else None
    named = dict(parts[2]) if len(parts) > 2 else {}
    return model_of(module, inputs, named, reference, image_size)


def _built(function: Callable[[], Any], reference: str) -> Any:
    """What the function returns, made without storage; with it where its code looks at values."""
    import torch

    try:
        try:
            with torch.device("meta"):
                return function()
        except (RuntimeError, NotImplementedError, TypeError) as error:
            if "meta" not in str(error).lower():
                raise
            return function()
    except Exception as error:  # the user's code may fail in any way
        raise failed(reference, error) from error


def named_function(reference: str) -> Any:
    """The function of ``module:function``, imported from the working folder or what is installed."""
    name, _, attribute = reference.partition(":")
    sys.path.insert(0, "")
    try:
        function = getattr(import_module(name), attribute, None)
    except Exception as error:  # the user's code may fail in any way
        raise failed(reference, error) from error
    finally:
        sys.path.remove("")
    if not callable(function):
        raise InputError("models.function_missing", field="model", given=reference)
    return function


def failed(reference: str, error: Exception) -> InputError:
    """The user's code raised: its last line says why."""
    reason = " ".join(f"{type(error).__name__}: {error}".split())[:160]
    return InputError("models.function_failed", field="model", given=reference, reason=reason)


def model_of(
    module: Any, inputs: Any, named: dict[str, Any], reference: str, image_size: int | None
) -> Model:
    """The model of a module, traced at one batch and, for tokens, at two lengths."""
    import torch

    module = _on_meta(module).train()
    notes: tuple[str, ...] = ()
    if inputs is None and not named:
        inputs, notes = _assumed(module, image_size), ("models.inputs_assumed",)
    arguments = tuple(_meta(item) for item in (inputs if isinstance(inputs, (tuple, list)) else (inputs,)))
    arguments = () if inputs is None else arguments
    named = {key: _meta(item) for key, item in named.items()}
    first = next((item for item in (*arguments, *named.values()) if isinstance(item, torch.Tensor)), None)
    batch = first.shape[0] if first is not None and first.ndim else 1
    steps = _record(module, arguments, named, batch, reference)
    length = _tokens(first)
    if length:
        longer = [_longer(item, length) for item in arguments]
        longer_named = {key: _longer(item, length) for key, item in named.items()}
        try:
            more = _record(module, tuple(longer), longer_named, batch, reference)
            steps = trace.grow(steps, more, (length, 2 * length))
        except InputError:
            # a fixed length (a learned position table): the graph holds at this one
            notes = (*notes, "models.length_fixed")
    sides = first.shape[-2:] if first is not None and first.ndim == 4 else ()
    return trace.model_of(
        steps,
        {name: value.numel() for name, value in module.named_parameters()},
        name=reference,
        architecture=type(module).__name__,
        source=reference,
        seq_len=length,
        image_size=int(sides[0]) if sides else None,
        notes=notes,
    )


def _on_meta(module: Any) -> Any:
    """The module without storage."""
    if all(value.is_meta for value in (*module.parameters(), *module.buffers())):
        return module
    return _moved(module, lambda: module.to("meta"))


def _moved(module: Any, move: Callable[[], Any]) -> Any:
    """The moved module. Moving makes new parameters, so shared ones are shared again."""
    shared: dict[int, list[str]] = {}
    for name, value in module.named_parameters(remove_duplicate=False):
        shared.setdefault(id(value), []).append(name)
    module = move()
    for names in shared.values():
        value = module.get_parameter(names[0])
        for name in names[1:]:
            owner, _, attribute = name.rpartition(".")
            setattr(module.get_submodule(owner), attribute, value)
    return module


def _record(module: Any, arguments: Any, named: Any, batch: int, reference: str) -> list[trace.Step]:
    try:
        return _steps(module, arguments, named, batch)
    except InputError:
        raise
    except Exception as error:  # the user's code may fail in any way
        change = _change_for(module, error)
        if change is None:
            raise failed(reference, error) from error
    try:
        return _steps(*change(module, arguments, named), batch)
    except InputError:
        raise
    except Exception as error:
        raise failed(reference, error) from error


def _steps(module: Any, arguments: Any, named: Any, batch: int) -> list[trace.Step]:
    from raceline.models.readers.torch_trace import record

    return trace.fuse_attention(record(module, arguments, named, batch))


def _change_for(module: Any, error: Exception) -> Callable[[Any, Any, Any], tuple[Any, Any, Any]] | None:
    """How to run a module that fails without storage: grouped products of experts want bf16, and code that
    looks at values (``.item()``, ``nonzero``) wants some, which a small module gets."""
    text = str(error)
    if "BF16" in text:
        return _in_halves
    elements = sum(value.numel() for value in module.parameters())
    # PyTorch says so in several ways, with one word in common
    return _with_zeros if "meta" in text.lower() and elements <= _MOST_STORED_ELEMENTS else None


def _in_halves(module: Any, arguments: Any, named: Any) -> tuple[Any, Any, Any]:
    named = {key: _halved(item) for key, item in named.items()}
    return module.bfloat16(), tuple(_halved(item) for item in arguments), named


def _with_zeros(module: Any, arguments: Any, named: Any) -> tuple[Any, Any, Any]:
    """Module and inputs in host memory, all zero."""
    module = _moved(module, lambda: module.to_empty(device="cpu"))
    for value in (*module.parameters(), *module.buffers()):
        value.detach().zero_()
    return (
        module,
        tuple(_zeros(item) for item in arguments),
        {key: _zeros(item) for key, item in named.items()},
    )


def _zeros(item: Any) -> Any:
    import torch

    return torch.zeros_like(item, device="cpu") if isinstance(item, torch.Tensor) else item


def _halved(item: Any) -> Any:
    import torch

    is_float = isinstance(item, torch.Tensor) and item.is_floating_point()
    return item.bfloat16() if is_float else item


def _meta(item: Any) -> Any:
    import torch

    return item.to("meta") if isinstance(item, torch.Tensor) else item


def _tokens(first: Any) -> int | None:
    """The length of a token sequence: whole numbers in [batch, length]."""
    import torch

    is_ids = first is not None and first.ndim == 2 and first.dtype in (torch.int64, torch.int32)
    return int(first.shape[1]) if is_ids and first.shape[1] > 1 else None


def _longer(item: Any, length: int) -> Any:
    """A tensor [batch, length, …] at twice the length."""
    import torch

    if not isinstance(item, torch.Tensor) or item.ndim < 2 or item.shape[1] != length:
        return item
    shape = (item.shape[0], 2 * length, *item.shape[2:])
    return torch.empty(shape, dtype=item.dtype, device="meta")


def _assumed(module: Any, image_size: int | None) -> tuple[Any, ...]:
    """One sample for the first layer with weights: token ids, an image, or features."""
    import torch

    for child in module.modules():
        if isinstance(child, torch.nn.Embedding):
            return (torch.zeros(1, DEFAULT_TOKENS, dtype=torch.int64, device="meta"),)
        if isinstance(child, torch.nn.Conv2d):
            side = image_size or DEFAULT_IMAGE_SIZE
            return (torch.zeros(1, child.in_channels, side, side, device="meta"),)
        if isinstance(child, torch.nn.Conv1d):
            return (torch.zeros(1, child.in_channels, 1024, device="meta"),)
        if isinstance(child, torch.nn.Linear):
            return (torch.zeros(1, child.in_features, device="meta"),)
    raise InputError("models.inputs_unknown", field="model", given=type(module).__name__)
