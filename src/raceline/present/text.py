"""Messages as text: gettext catalogues, one per language and domain, read when first needed."""

from __future__ import annotations

import functools
import gettext
import math
from collections.abc import Hashable
from importlib import resources
from types import UnionType
from typing import Any, Literal, Union, cast, get_args, get_origin

import msgspec

from raceline.present import units
from raceline.present.errors import Message, RacelineError, message
from raceline.present.views import Content, Quantity

LANGUAGES = ("en", "zh")
FALLBACK = "en"
# Longest text taken from one parameter: a hostile file must not fill the screen.
_LONGEST = 400

# Parameters that name a thing of raceline by its id; the word for it is translated.
_WORD_PARAMS = frozenset({"part", "bound", "bound_by", "task", "method", "reason_word"})


def render(item: Message, language: str = FALLBACK) -> str:
    """The message's text in `language`, else in English, else its id and parameters."""
    template = _template(item.id, language) or _template(item.id, FALLBACK)
    if template is None:
        return _bare(item)
    values = {name: _value(name, value, language) for name, value in item.params.items()}
    try:
        return template.format_map(values)
    except (KeyError, IndexError, ValueError, AttributeError):
        return _bare(item)


def word(name: str) -> Message:
    """The translated word for an id of raceline (``kv_cache``, ``compute``, ``train``)."""
    return message(f"present.word_{name}")


def content(item: Content | None, language: str = FALLBACK) -> str:
    """The text of a view's label or line."""
    if item is None:
        return ""
    if isinstance(item, tuple):
        return " ".join(filter(None, (content(part, language) for part in item)))
    if isinstance(item, Message):
        return render(item, language)
    if isinstance(item, Quantity):
        return units.quantity(item.value, item.unit, item.low, item.high)
    return item


# From this length on, looking a tuple up is quicker than turning it.
_LONG = 8
_PLAIN = frozenset((type(None), str, bool, int))
_WRITTEN = _PLAIN | {float}


def builtin(value: Any) -> Any:
    """A result as JSON-ready values; each Message becomes ``{id, params, text}`` with English text."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is float:
        return value if math.isfinite(value) else None
    if isinstance(value, Message):
        try:
            return _message(value.id, tuple(value.params.items()))
        except TypeError:  # a parameter that can't be hashed
            return {"id": value.id, "params": builtin(value.params), "text": render(value)}
    if isinstance(value, msgspec.Struct):
        return _struct(value)
    if isinstance(value, dict):
        return {str(key): builtin(item) for key, item in value.items()}
    if kind is tuple and len(value) >= _LONG:
        try:
            return _shared(value)
        except TypeError:  # something in it can't be hashed
            pass
    if isinstance(value, (list, tuple)):
        return [builtin(item) for item in value]
    return _other(value)


@functools.lru_cache(maxsize=1024)
def _message(id: str, params: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    """A message that many results hold, turned once."""
    item = Message(id, dict(params))
    return {"id": id, "params": builtin(item.params), "text": render(item)}


@functools.lru_cache(maxsize=64)
def _shared(value: tuple[Any, ...]) -> list[Any]:
    """A long tuple that many results hold, such as the facts they stand on, turned once."""
    return [builtin(item) for item in value]


def _other(value: Any) -> Any:
    """NumPy's numbers and arrays, and kinds derived from the plain ones."""
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, (str, int)):
        return value
    return builtin(msgspec.to_builtins(value.tolist() if hasattr(value, "tolist") else value))


def encodable(value: Any) -> Any:
    """A result as what msgspec's JSON encoder takes: like `builtin`, but values that it can write by itself are
    left as they are, and a long tuple that many results hold is written once."""
    kind = type(value)
    if isinstance(value, msgspec.Struct) and not isinstance(value, Message):
        if _is_plain(cast(Hashable, kind)):
            return value
        return _encodable_struct(value)
    if kind is tuple and value and all(_is_plain(cast(Hashable, type(item))) for item in value):
        return _written(value) if len(value) >= _LONG else value
    return builtin(value)


def _encodable_struct(value: msgspec.Struct) -> dict[str, Any]:
    tag, fields = _encoding(cast(Hashable, type(value)))
    data = dict(tag)
    for name, encoded, is_plain in fields:
        item = getattr(value, name)
        data[encoded] = item if is_plain or type(item) in _WRITTEN else encodable(item)
    return data


@functools.cache
def _encoding(kind: Hashable) -> tuple[dict[str, Any], tuple[tuple[str, str, bool], ...]]:
    """A struct's tag, and of each field its name, its name in JSON and whether msgspec writes it as it is."""
    struct = cast(type[msgspec.Struct], kind)
    config = struct.__struct_config__
    tag = {config.tag_field: config.tag} if config.tag_field else {}
    return tag, tuple(
        (field.name, field.encode_name, _is_plain_type(field.type))
        for field in msgspec.structs.fields(struct)
    )


@functools.lru_cache(maxsize=256)
def _written(value: tuple[Any, ...]) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


@functools.cache
def _is_plain(kind: Hashable) -> bool:
    """Whether a type is a struct of numbers, texts and such structs alone."""
    return (
        isinstance(kind, type)
        and issubclass(kind, msgspec.Struct)
        and all(_is_plain_type(field.type) for field in msgspec.structs.fields(kind))
    )


def _is_plain_type(kind: Any) -> bool:
    if get_origin(kind) in (Union, UnionType):
        return all(_is_plain_type(part) for part in get_args(kind))
    if get_origin(kind) is Literal or kind in (float, int, str, bool, type(None)):
        return True
    return kind is not Message and _is_plain(cast(Hashable, kind))


def error_data(error: RacelineError) -> dict[str, Any]:
    """An error as JSON: ``{id, params, field, message}``, the message in English."""
    item = error.message
    return {
        "id": item.id,
        "params": builtin(item.params),
        "field": error.field,
        "message": one_line(render(item)),
    }


def one_line(text: str) -> str:
    """`text` without line breaks or control characters."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def has_text(id: str, language: str = FALLBACK) -> bool:
    """Whether the catalogue of `language` holds a text for the id."""
    return _template(id, language) is not None


def _value(name: str, value: Any, language: str) -> str:
    if isinstance(value, Message):
        return render(value, language)
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(name, item, language) for item in value)
    if name in _WORD_PARAMS and isinstance(value, str) and has_text(f"present.word_{value}"):
        return render(word(value), language)
    text = units.shown(name, value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _bare(item: Message) -> str:
    params = ", ".join(f"{name}={units.shown(name, value)}" for name, value in item.params.items())
    return f"{item.id} ({params})" if params else item.id


def _template(id: str, language: str) -> str | None:
    found = _catalogue(language, id.split(".", 1)[0]).gettext(id)
    return found if found != id else None


@functools.cache
def _catalogue(language: str, domain: str) -> gettext.NullTranslations:
    if language not in LANGUAGES or not domain.isidentifier():
        return gettext.NullTranslations()
    path = resources.files("raceline.present").joinpath("messages", language, f"{domain}.mo")
    try:
        with path.open("rb") as file:
            return gettext.GNUTranslations(file)
    except FileNotFoundError:
        return gettext.NullTranslations()


@functools.cache
def _names(kind: type[msgspec.Struct]) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, field.encode_name) for field in msgspec.structs.fields(kind))


def _struct(value: msgspec.Struct) -> dict[str, Any]:
    config = value.__struct_config__
    data = {config.tag_field: config.tag} if config.tag_field else {}
    for name, encoded in _names(type(value)):
        item = getattr(value, name)
        if item is None and config.omit_defaults:
            continue
        kind = type(item)
        if kind is float:
            data[encoded] = item if math.isfinite(item) else None
        else:
            data[encoded] = item if kind in _PLAIN else builtin(item)
    return data
