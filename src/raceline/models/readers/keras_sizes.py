"""Height and width in a Keras network whose input leaves them open: the size of an image, followed from
layer to layer. Formulas: keras.io/api/layers, the output shapes of convolution, pooling and padding layers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

Size = tuple[int, int]

_DEEPEST = 20
_WITHOUT_SIZE = ("Flatten", "Reshape", "Permute")


def sizes_of(network: Any, side: int) -> dict[str, Size]:
    """The size of what each layer is given, by the layer's path, for images of side x side."""
    found: dict[str, Size] = {}
    _follow(network, "", (side, side), found, 0)
    return found


def _follow(node: Any, path: str, given: Size | None, found: dict[str, Size], depth: int) -> Size | None:
    """Note the size for all layers of a node; the size that it hands on."""
    config = node["config"]
    if not isinstance(config.get("layers"), list) or depth > _DEEPEST:
        if given is not None:
            found[path] = given
        return _after(node["class_name"], config, given)
    last, made = given, dict[str, "Size | None"]()
    for layer in config["layers"]:
        name = layer["config"].get("name", layer["class_name"])
        sources = [made.get(source) for source in _sources(layer.get("inbound_nodes") or [], 0)]
        # a gate of 1 x 1 may stand beside what it gates
        largest = max((size for size in sources if size is not None), default=None)
        is_start = layer["class_name"] == "InputLayer"
        taken = given if is_start else largest if sources else last
        last = made[name] = _follow(layer, f"{path}.{name}".lstrip("."), taken, found, depth + 1)
    return last


def _sources(value: Any, depth: int) -> Iterator[str]:
    """The names of the layers whose results an argument holds."""
    if isinstance(value, dict):
        history = value.get("keras_history")
        if isinstance(history, list) and history:
            yield str(history[0])
        value = list(value.values())
    if isinstance(value, list) and depth < _DEEPEST:
        for item in value:
            yield from _sources(item, depth + 1)


def _after(kind: str, config: dict[str, Any], given: Size | None) -> Size | None:
    if given is None or kind.startswith("Global") or kind in _WITHOUT_SIZE:
        return None
    if kind == "UpSampling2D":
        return _each(lambda at: given[at] * _pair(config["size"])[at])
    if kind in ("ZeroPadding2D", "Cropping2D"):
        sign = 1 if kind == "ZeroPadding2D" else -1
        name = "padding" if sign > 0 else "cropping"
        return _each(lambda at: given[at] + sign * sum(_pair(config[name][at])))
    reach = config.get("kernel_size", config.get("pool_size"))
    if reach is None:
        return given
    strides, spread = _pair(config.get("strides") or reach), _pair(config.get("dilation_rate", 1))
    is_same = config.get("padding") == "same"
    if kind.endswith("Transpose"):
        return _each(
            lambda at: given[at] * strides[at] + (not is_same) * max(_pair(reach)[at] - strides[at], 0)
        )
    return _each(lambda at: _windows(given[at], _pair(reach)[at], strides[at], spread[at], is_same))


def _windows(size: int, reach: int, stride: int, spread: int, is_same: bool) -> int:
    return -(-size // stride) if is_same else max((size - spread * (reach - 1) - 1) // stride + 1, 0)


def _each(length: Any) -> Size:
    return int(length(0)), int(length(1))


def _pair(value: Any) -> Size:
    """One number for both directions, or two."""
    if isinstance(value, list) and len(value) == 2 and all(type(item) is int for item in value):
        return value[0], value[1]
    if type(value) is not int:
        raise ValueError(value)
    return value, value
