"""The one entry to models: a name, a file, a folder, a hub reference or a function becomes a Model."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import msgspec

from raceline.models.graph import Model
from raceline.present.errors import InputError

Reader = Callable[[str, "int | None"], Model]

# How a reference begins or ends -> module:function(reference, image_size). Outside readers add lines.
PREFIXES: dict[str, str] = {
    "hf:": "raceline.models.readers.hf:read_hub",
    "timm:": "raceline.models.readers.timm:read",
    "jax:": "raceline.models.readers.jax:read",
    "megatron:": "raceline.models.readers.megatron:read",
    "sizes:": "raceline.models.readers.sizes:read",
    "clip:": "raceline.models.readers.clip:read",
}
SUFFIXES: dict[str, str] = {
    ".json": "raceline.models.readers.hf:read_config",
    ".safetensors": "raceline.models.readers.safetensors:read",
    ".gguf": "raceline.models.readers.gguf:read",
    ".onnx": "raceline.models.readers.onnx:read",
    ".keras": "raceline.models.readers.keras:read",
    ".pt2": "raceline.models.readers.torch_export:read",
}
# References that hold all that is known of a model.
DESCRIBED = ("megatron:", "sizes:", "clip:")
FUNCTION = "raceline.models.readers.torch_module:read"
_LONGEST = 4096


def register(pattern: str, target: str) -> None:
    """Add a reader from outside: ``register(".mymodel", "my_package.reader:read")``."""
    (PREFIXES if pattern.endswith(":") else SUFFIXES)[pattern] = target


def read_model(reference: str, *, image_size: int | None = None) -> Model:
    """The model that a reference means.

    A bundled name (``llama-3.1-8b``), a ``config.json``, ``.safetensors``, ``.gguf``, ``.onnx``,
    ``.keras`` or ``.pt2`` file, a model folder, ``hf:ORG/NAME``, ``timm:NAME``,
    ``megatron:{arguments}``, ``sizes:{parameters_m, gmacs, mactivations_m}``, ``clip:{model, frames}``
    (a bundled video model), or ``module:function`` (run, since it was named).
    Raises InputError where it can't be read.
    """
    if not reference or len(reference) > _LONGEST or "\0" in reference:
        raise InputError("models.reference_wrong", field="model", given=reference[:60])
    for prefix, target in PREFIXES.items():
        if reference.startswith(prefix):
            return _reader(target)(reference.removeprefix(prefix), image_size)
    path = Path(reference)
    target = SUFFIXES.get(path.suffix.lower(), "")
    if target and (path.exists() or "/" not in reference):
        return _from_file(path, target, image_size)
    if path.is_dir():
        from raceline.models.readers.hf import read_folder

        return read_folder(path, image_size)
    if target:
        return _from_file(path, target, image_size)
    if _is_function(reference):
        return _reader(FUNCTION)(reference, image_size)
    return _bundled(reference, image_size)


def read_listed(reference: str, image_size: int | None = None) -> Model:
    """The model that a table names: a bundled one, or one described in the reference itself. Nothing is opened,
    fetched or run. Raises InputError where it is neither."""
    for prefix in DESCRIBED:
        if reference.startswith(prefix):
            return _reader(PREFIXES[prefix])(reference.removeprefix(prefix), image_size)
    return _bundled(reference, image_size)


def listed_name(reference: str) -> str | None:
    """The one word for a model that `read_listed` knows: the bundled model's own name, which no other reader takes
    for a file, a hub or a function as it may take forgiving spellings (``gpt:_2``), or a description as it is;
    None where it is neither."""
    from raceline.models import names

    if reference.startswith(DESCRIBED):
        return reference
    return names.find(reference).name if names.is_bundled(reference) else None


def _from_file(path: Path, target: str, image_size: int | None) -> Model:
    if not path.is_file():
        raise InputError("models.file_missing", field="model", given=str(path))
    return _reader(target)(str(path), image_size)


def _is_function(reference: str) -> bool:
    module, colon, function = reference.partition(":")
    return bool(colon) and function.isidentifier() and all(part.isidentifier() for part in module.split("."))


def _reader(target: str) -> Reader:
    module, _, function = target.partition(":")
    reader: Reader = getattr(import_module(module), function)
    return reader


def _bundled(name: str, image_size: int | None) -> Model:
    from raceline.models import names
    from raceline.models.families import registry
    from raceline.models.fields import Fields

    found = names.find(name)
    model = registry.build_model(Fields(found.config), image_size)
    return msgspec.structs.replace(model, name=found.name, source=found.source)
