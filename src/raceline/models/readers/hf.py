"""Hugging Face configs and diffusers pipelines: a config mapping to a model."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from raceline.models.families import registry
from raceline.models.fields import Fields
from raceline.models.graph import Model
from raceline.present.documents import load_json
from raceline.present.errors import InputError, MissingExtraError

COMPONENTS = ("transformer", "unet", "vae", "text_encoder", "text_encoder_2", "text_encoder_3")
DOWNLOAD_TIMEOUT_S = 20.0
LARGEST_CONFIG_BYTES = 8 * 2**20


def read_config(path: Path | str, image_size: int | None = None) -> Model:
    """The model of a ``config.json`` (or of a ``model_index.json`` with its components beside it)."""
    path = Path(path)
    config = load_json(path)
    if isinstance(config, Mapping) and "weight_map" in config:
        from raceline.models.readers.safetensors import read_index

        return read_index(path, config, image_size)
    if path.name == "model_index.json":
        config = _pipeline(config, path.parent)
    return build(config, path.parent.name or path.stem, str(path), image_size)


def read_folder(path: Path, image_size: int | None = None) -> Model:
    """The model of a folder: its pipeline, its config, or the header of its weights."""
    for name in ("model_index.json", "config.json"):
        if (path / name).is_file():
            return read_config(path / name, image_size)
    for pattern in ("*.safetensors.index.json", "*.safetensors", "*.gguf"):
        # shards of one model are read through their index, so several bare files are ambiguous
        files = list(islice(path.glob(pattern), 2))
        if len(files) == 1:
            from raceline.models.read import read_model

            return read_model(str(files[0]), image_size=image_size)
    raise InputError("models.folder_without_config", field="model", given=str(path))


def read_hub(name: str, image_size: int | None = None, *, endpoint: str | None = None) -> Model:
    """The model of ``hf:ORG/NAME``: its configs alone are downloaded (extra `hub`).

    `endpoint`: another hub than huggingface_hub's own choice."""
    config = _download(name, "config.json", endpoint)
    if config is None:
        config = _download(name, "model_index.json", endpoint)
        if isinstance(config, Mapping):
            parts = {
                part: _download(name, f"{part}/config.json", endpoint)
                for part in COMPONENTS
                if part in config
            }
            config = {**config, **{part: found for part, found in parts.items() if found is not None}}
    if config is None:
        raise InputError("models.hub_without_config", field="model", given=name[:200])
    return build(config, name, f"https://huggingface.co/{name}", image_size)


def _download(name: str, file: str, endpoint: str | None) -> Any:
    """A JSON file of a repository, None where the repository lacks it. Its size is asked for first."""
    try:
        import huggingface_hub as hub
        from huggingface_hub import errors
    except ImportError:
        raise MissingExtraError("models.extra_missing", extra="hub", package="huggingface_hub") from None
    try:
        url = hub.hf_hub_url(name, file, endpoint=endpoint)
        size_bytes = hub.get_hf_file_metadata(url, timeout=DOWNLOAD_TIMEOUT_S, endpoint=endpoint).size
        if size_bytes is None or size_bytes > LARGEST_CONFIG_BYTES:
            raise InputError("present.too_large", limit_mib=LARGEST_CONFIG_BYTES / 2**20)
        path = hub.hf_hub_download(name, file, endpoint=endpoint, etag_timeout=DOWNLOAD_TIMEOUT_S)
    except errors.EntryNotFoundError as error:
        if isinstance(error, errors.LocalEntryNotFoundError):
            raise _unreachable(name, error) from None
        return None
    except InputError:
        raise
    except Exception as error:  # the hub's clients raise errors of their HTTP library, which may change
        raise _unreachable(name, error) from None
    return load_json(Path(path))


def _unreachable(name: str, error: Exception) -> InputError:
    return InputError("models.hub_unreachable", field="model", given=name[:200], reason=type(error).__name__)


def build(config: Any, name: str, source: str, image_size: int | None = None) -> Model:
    """The model that a config mapping describes."""
    if not isinstance(config, Mapping):
        raise InputError("models.config_not_mapping", field="model", given=type(config).__name__)
    model = registry.build_model(Fields(config), image_size)
    return msgspec.structs.replace(model, name=name, source=source)


def _pipeline(config: Any, folder: Path) -> Any:
    """A pipeline's index with the config of each component that lies beside it."""
    if not isinstance(config, Mapping):
        raise InputError("models.config_not_mapping", field="model", given=type(config).__name__)
    merged = dict(config)
    for name in COMPONENTS:
        file = folder / name / "config.json"
        if name in config and file.is_file():
            merged[name] = load_json(file)
    return merged
