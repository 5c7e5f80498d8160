"""A .keras file: the configuration inside its zip. Weights stay unread and no code of the file is run.

Each layer's configuration holds the shape that it was built for (`build_config`), so no layer is built
again. Layer definitions: keras.io/api/layers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import msgspec

from raceline.models.fields import Fields
from raceline.models.graph import Matmul, Model, fixed
from raceline.models.readers import trace
from raceline.models.readers.archives import read_members
from raceline.models.readers.keras_sizes import Size, sizes_of
from raceline.models.readers.tensors import Shape, checked_shape
from raceline.models.readers.trace import Step, Value
from raceline.present.documents import load_json
from raceline.present.errors import InputError

DEFAULT_TOKENS = 128
_CONTAINERS = ("Functional", "Sequential", "Model")
_DEEPEST = 20
_MOST_WRAPPERS = 3
_MOST_LAYERS = 5000
# functions of keras.ops in a network: those that multiply matrices are named, as their sizes stand nowhere
_OPERATIONS = ("keras.src.ops", "keras.ops")
_PRODUCTS = ("Matmul", "Einsum", "Dot", "Tensordot", "Inner", "Outer", "Conv", "DepthwiseConv", "SeparableConv",
             "ConvTranspose", "DotProductAttention")  # fmt: skip
_PRECISIONS = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "mixed_bfloat16": "bf16",
               "mixed_float16": "fp16"}  # fmt: skip


def read(reference: str, image_size: int | None = None) -> Model:
    """The model of a ``.keras`` file."""
    path = Path(reference)
    members = read_members(path, lambda name: name == "config.json")
    if "config.json" not in members:
        raise InputError("models.keras_without_config", given=path.name)
    config = load_json(members["config.json"])
    try:
        return _model(config, path, image_size)
    except (
        KeyError,
        TypeError,
        AttributeError,
        ValueError,
        IndexError,
        ZeroDivisionError,
        OverflowError,
    ) as error:
        raise InputError("models.keras_wrong", given=path.name, reason=type(error).__name__) from None


def _model(config: Any, path: Path, image_size: int | None) -> Model:
    layers = list(islice(_layers(config, ""), _MOST_LAYERS + 1))
    if len(layers) > _MOST_LAYERS:
        raise InputError("present.too_many_nodes", limit=_MOST_LAYERS)
    if not layers:
        raise InputError("models.keras_without_config", given=path.name)
    entry = next((layer for layer in layers if layer.kind == "InputLayer"), None)
    shape = (entry.config.get("batch_shape") or entry.config.get("batch_input_shape") or []) if entry else []
    is_text = entry is not None and len(shape) == 2 and "int" in str(entry.config.get("dtype"))
    length = (shape[1] or DEFAULT_TOKENS) if is_text else None
    sizes = sizes_of(config, image_size) if image_size and len(shape) == 4 and None in shape[1:3] else {}
    steps = _steps(layers, length or DEFAULT_TOKENS, sizes)
    if length and shape[1] is None:
        steps = trace.grow(steps, _steps(layers, 2 * length, sizes), (length, 2 * length))
    weights = {name: size for step in steps for name, size in step.weights.items()}
    side = (shape[1] or image_size) if len(shape) == 4 else None
    notes = (
        ("models.kept_assumed",)
        if not length or shape[1] is None
        else ("models.kept_assumed", "models.length_fixed")
    )
    model = trace.model_of(
        steps, weights, name=path.stem, architecture="Keras", source=str(path), seq_len=length,
        image_size=side, notes=notes,
    )  # fmt: skip
    return msgspec.structs.replace(model, precision=_precision(layers))


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """One layer: its class, its settings, the shapes it was built for, how often it is applied, and how many
    wrappers stand around it."""

    kind: str
    path: str
    config: dict[str, Any]
    built: dict[str, Any]
    uses: int
    is_operation: bool = False
    wrappers: int = 0


def _layers(node: Any, path: str, depth: int = 0) -> Iterator[Layer]:
    """All layers of a model, those of models inside it too."""
    if depth > _DEEPEST:
        raise InputError("present.too_deep", limit=_DEEPEST)
    kind, config = node["class_name"], node["config"]
    if not isinstance(kind, str) or not isinstance(config, dict):
        raise TypeError(kind)
    if kind in _CONTAINERS or isinstance(config.get("layers"), list):
        for layer in config["layers"]:
            inner = layer["config"].get("name", layer["class_name"])
            yield from _layers(layer, f"{path}.{inner}".lstrip("."), depth + 1)
        return
    uses = max(len(node.get("inbound_nodes") or ()), 1)
    yield Layer(
        kind=kind, path=path[:300] or kind, config=config, built=node.get("build_config") or {}, uses=uses,
        is_operation=str(node.get("module", "")).startswith(_OPERATIONS),
    )  # fmt: skip


def _precision(layers: list[Layer]) -> str | None:
    for layer in layers:
        stated = layer.config.get("dtype")
        name = stated.get("config", {}).get("name") if isinstance(stated, dict) else stated
        if layer.kind != "InputLayer" and name in _PRECISIONS:
            return _PRECISIONS[name]
    return None


def _steps(layers: list[Layer], tokens: int, sizes: Mapping[str, Size]) -> list[Step]:
    steps: list[Step] = []
    for layer in layers:
        for step in _step(layer, tokens, sizes.get(layer.path)):
            rows = step.op.rows.scaled(layer.uses)
            op = msgspec.structs.replace(step.op, rows=rows)
            kept = step.kept or trace.input_of(op, f"{step.path}/{len(steps)}")
            steps.append(msgspec.structs.replace(step, op=op, kept=kept))
    return steps


def _step(layer: Layer, tokens: int, size: Size | None) -> list[Step]:
    if layer.kind in _WITHOUT_WORK:
        return []
    rule = None if layer.is_operation else _RULES.get(layer.kind)
    is_plain = layer.kind not in _PRODUCTS if layer.is_operation else layer.kind in _PLAIN
    if rule is None and not is_plain:
        raise InputError("models.keras_layer", field="model", given=layer.kind[:60], layer=layer.path[:60])
    stated = layer.built.get("input_shape")
    if stated is None and "shapes_dict" in layer.built:
        stated = next(iter(layer.built["shapes_dict"].values()))
    if stated is None:
        if rule is not None:
            raise InputError("models.keras_unbuilt", field="model", given=layer.path[:60])
        return []
    if stated and isinstance(stated[0], list):
        stated = stated[0]
    shape = _shape(stated, tokens, size)
    if rule is not None:
        return rule(layer, Fields(layer.config, f"{layer.path}."), shape)
    value = Value(shape)
    return [trace.elementwise(layer.path, layer.kind.lower(), [value], value, 1)]


def _shape(stated: Any, tokens: int, size: Size | None) -> Shape:
    """A built shape for one sample: an open dimension of a sequence takes the length, of an image the size."""
    sizes = list(stated)
    is_image = len(sizes) == 4
    if is_image and None in sizes[1:3] and size is None:
        raise InputError("models.keras_open_size", field="image_size")
    filling = (tokens, *size, tokens) if is_image and size is not None else (tokens,) * len(sizes)
    filled = [
        given if given is not None else fill for given, fill in zip(sizes[1:], filling[1:], strict=False)
    ]
    return checked_shape([1, *filled], "input_shape")


def _weighted(layer: Layer, op: Any, elements: int, suffix: str = "") -> Step:
    return Step(path=layer.path, op=op, weights={f"{layer.path}{suffix}": elements})


def _dense(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
    n, bias = fields.integer("units"), fields.flag("use_bias", default=True)
    op = Matmul(name="dense", rows=fixed(math.prod(shape[1:-1])), k=shape[-1], n=n, bias=bias)
    return [_weighted(layer, op, shape[-1] * n + n * bias)]


def _window(fields: Fields, shape: Shape, dimensions: int) -> tuple[list[int], list[int], int]:
    """Kernel sizes, output sizes, and the input's channels."""
    kernel = _numbers(fields, "kernel_size", dimensions)
    strides = _numbers(fields, "strides", dimensions)
    dilation = _numbers(fields, "dilation_rate", dimensions)
    is_last = fields.text("data_format", default="channels_last") == "channels_last"
    given = shape[1:-1] if is_last else shape[2:]
    channels = shape[-1] if is_last else shape[1]
    pads = fields.text("padding", default="valid") != "valid"
    sizes = [
        -(-size // step) if pads else max((size - spread * (reach - 1) - 1) // step + 1, 0)
        for size, step, reach, spread in zip(given, strides, kernel, dilation, strict=True)
    ]
    return kernel, sizes, channels


def _numbers(fields: Fields, name: str, dimensions: int) -> list[int]:
    value = fields.values.get(name, 1)
    many = value if isinstance(value, list) else [value] * dimensions
    if len(many) != dimensions:
        raise ValueError(name)
    return [Fields({name: item}, fields.where).integer(name) for item in many]


def _convolution(dimensions: int, kind: str = "plain") -> Callable[[Layer, Fields, Shape], list[Step]]:
    def build(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
        kernel, sizes, channels = _window(fields, shape, dimensions)
        bias = fields.flag("use_bias", default=True)
        given = Value((1, channels, *shape[1:-1]))
        area = tuple(kernel)
        multiplier = fields.integer("depth_multiplier", default=1)
        if kind == "depthwise":
            weight = Value((channels * multiplier, 1, *area), layer.path)
            return [_convolved(layer, given, weight, sizes, channels, bias)]
        out = fields.integer("filters")
        if kind == "separable":
            depth = Value((channels * multiplier, 1, *area), f"{layer.path}/depthwise")
            point = Value((out, channels * multiplier, *(1,) * dimensions), f"{layer.path}/pointwise")
            return [
                _convolved(layer, given, depth, sizes, channels, False),
                _convolved(layer, Value((1, channels * multiplier, *sizes)), point, sizes, 1, bias),
            ]
        if kind == "transposed":
            weight = Value((channels, out, *area), layer.path)
            step = trace.convolution(layer.path, given, weight, None, given, 1, 1, is_transposed=True)
            return [msgspec.structs.replace(step, weights={layer.path: weight.elements() + out * bias})]
        groups = fields.integer("groups", default=1)
        weight = Value((out, channels // groups, *area), layer.path)
        return [_convolved(layer, given, weight, sizes, groups, bias)]

    return build


def _convolved(layer: Layer, given: Value, weight: Value, sizes: list[int], groups: int, bias: bool) -> Step:
    offset = Value((weight.shape[0],), f"{layer.path}/bias") if bias else None
    return trace.convolution(
        layer.path, given, weight, offset, Value((1, weight.shape[0], *sizes)), groups, 1
    )


def _normalisation(
    style: Literal["layer", "rms", "batch", "group"],
) -> Callable[[Layer, Fields, Shape], list[Step]]:
    def build(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
        axis = fields.values.get("axis", -1)
        axes = axis if isinstance(axis, list) else [axis]
        width = math.prod(shape[at] for at in axes)
        scale = Value((width,), f"{layer.path}/gamma") if fields.flag("scale", default=True) else None
        has_center = style != "rms" and fields.flag("center", default=True)
        center = Value((width,), f"{layer.path}/beta") if has_center else None
        return [trace.norm(layer.path, style, Value(shape), scale, center, 1)]

    return build


def _embedding(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
    table = Value((fields.integer("input_dim"), fields.integer("output_dim")), layer.path)
    return [trace.embedding(layer.path, table, Value(shape), 1)]


def _recurrent(gates: int) -> Callable[[Layer, Fields, Shape], list[Step]]:
    """LSTM: 4 gates; GRU: 3, with a second bias where the reset comes after the product; RNN: 1."""

    def build(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
        units, bias = fields.integer("units"), fields.flag("use_bias", default=True)
        k, n = shape[-1] + units, gates * units
        copies = 2 if gates == 3 and fields.flag("reset_after", default=True) else 1
        op = Matmul(name=layer.kind.lower(), rows=fixed(math.prod(shape[1:-1])), k=k, n=n, bias=bias)
        return [_weighted(layer, op, k * n + copies * n * bias)]

    return build


def _attention(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
    """MultiHeadAttention and GroupedQueryAttention: four projections around softmax(q k) v."""
    grouped = layer.kind != "MultiHeadAttention"
    heads = fields.integer("num_query_heads" if grouped else "num_heads")
    kv_heads = fields.integer("num_key_value_heads") if grouped else heads
    size = fields.integer("head_dim" if grouped else "key_dim")
    value_size = fields.integer("value_dim", default=size)
    shapes = layer.built.get("shapes_dict", {})
    memory_stated = shapes.get("value_shape", [None, None, shape[-1]])
    memory = _shape(memory_stated, shape[-2], None)
    bias = fields.flag("use_bias", default=True)
    steps = []
    for name, given, n in (("query", shape, heads * size), ("key", memory, kv_heads * size),
                           ("value", memory, kv_heads * value_size)):  # fmt: skip
        steps.append(_projection(layer, name, given, n, bias))
    rows, kv_rows = math.prod(shape[1:-1]), math.prod(memory[1:-1])
    steps.append(
        trace.attention(layer.path, (1, heads, rows, size), (1, kv_heads, kv_rows, size),
                        (1, kv_heads, kv_rows, value_size), 1, causal=False)
    )  # fmt: skip
    steps.append(_projection(layer, "output", (1, rows, heads * value_size), shape[-1], bias))
    return steps


def _projection(layer: Layer, name: str, given: Shape, n: int, bias: bool) -> Step:
    k = given[-1]
    op = Matmul(name=name, rows=fixed(math.prod(given[1:-1])), k=k, n=n, bias=bias)
    return _weighted(layer, op, k * n + n * bias, f"/{name}")


def _inside(layer: Layer, shape: list[int], suffix: str = "") -> list[Step]:
    """The steps of the layer that a wrapper holds, on this shape."""
    if layer.wrappers >= _MOST_WRAPPERS:
        raise InputError("present.too_deep", limit=_MOST_WRAPPERS)
    inner = layer.config["layer"]
    made = Layer(kind=inner["class_name"], path=f"{layer.path}{suffix}", config=inner["config"],
                 built={"input_shape": shape}, uses=1, wrappers=layer.wrappers + 1)  # fmt: skip
    return _step(made, 1, None)


def _bidirectional(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
    return [*_inside(layer, list(shape), ".forward"), *_inside(layer, list(shape), ".backward")]


def _time_distributed(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
    return [
        msgspec.structs.replace(step, op=msgspec.structs.replace(step.op, rows=step.op.rows.scaled(shape[1])))
        for step in _inside(layer, [1, *shape[2:]])
    ]


def _wrapped(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
    """A layer around one other, which has all its weights."""
    return _inside(layer, list(shape))


def _einsum(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
    """EinsumDense: ``abc,cd->abd`` sums over what input and kernel share and the result lacks."""
    left, _, result = fields.text("equation").partition("->")
    given, _, kernel = left.partition(",")
    made = [size if size is not None else -1 for size in _sizes(fields, "output_shape")]
    lengths = dict(zip(result[1:], made, strict=True)) | dict(zip(given, shape, strict=True))
    k = math.prod(lengths[label] for label in kernel if label not in result)
    n = math.prod(lengths[label] for label in kernel if label in result)
    rows = math.prod(size for label, size in lengths.items() if label not in kernel)
    checked_shape([k, n], "kernel")
    bias = math.prod(lengths[label] for label in fields.text("bias_axes", default="") or "")
    op = Matmul(name="einsum", rows=fixed(rows), k=k, n=n, bias=bias == n and "bias_axes" in layer.config)
    return [_weighted(layer, op, k * n + (bias if layer.config.get("bias_axes") else 0))]


def _sizes(fields: Fields, name: str) -> list[int | None]:
    value = fields.values.get(name)
    return list(value) if isinstance(value, list) else [value]


def _layer_scale(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
    step = trace.elementwise(layer.path, "scale", [Value(shape)], Value(shape), 1)
    return [msgspec.structs.replace(step, weights={layer.path: fields.integer("projection_dim")})]


def _prelu(layer: Layer, fields: Fields, shape: Shape) -> list[Step]:
    shared = {at for at in (fields.values.get("shared_axes") or []) if isinstance(at, int)}
    size = math.prod(1 if at in shared else length for at, length in enumerate(shape) if at)
    step = trace.elementwise(layer.path, "prelu", [Value(shape)], Value(shape), 1)
    return [msgspec.structs.replace(step, weights={layer.path: size})]


_RULES: dict[str, Callable[[Layer, Fields, Shape], list[Step]]] = {
    "Dense": _dense, "Embedding": _embedding, "MultiHeadAttention": _attention, "LSTM": _recurrent(4),
    "GroupedQueryAttention": _attention, "GroupQueryAttention": _attention, "GRU": _recurrent(3),
    "SimpleRNN": _recurrent(1), "BatchNormalization": _normalisation("batch"), "PReLU": _prelu,
    "LayerNormalization": _normalisation("layer"), "GroupNormalization": _normalisation("group"),
    "RMSNormalization": _normalisation("rms"), "Bidirectional": _bidirectional, "TimeDistributed": _time_distributed,
    "SpectralNormalization": _wrapped, "EinsumDense": _einsum, "LayerScale": _layer_scale,
}  # fmt: skip
for _dimensions in (1, 2, 3):
    _RULES[f"Conv{_dimensions}D"] = _convolution(_dimensions)
    _RULES[f"Conv{_dimensions}DTranspose"] = _convolution(_dimensions, "transposed")
    _RULES[f"DepthwiseConv{_dimensions}D"] = _convolution(_dimensions, "depthwise")
    _RULES[f"SeparableConv{_dimensions}D"] = _convolution(_dimensions, "separable")

_NO_WORK_NAMES = (
    "InputLayer", "Flatten", "Reshape", "Permute", "Dropout", "SpatialDropout1D", "SpatialDropout2D",
    "RepeatVector", "Masking", "GaussianNoise", "GaussianDropout", "ActivityRegularization", "Lambda",
    "Identity", "RandomFlip", "RandomRotation", "RandomZoom", "RandomCrop", "RandomContrast",
    "RandomTranslation", "Rescaling", "Resizing", "CenterCrop", "TextVectorization", "StringLookup",
    "IntegerLookup",
)  # fmt: skip
# Lambda holds code of the file's author: it isn't run, and has no weights.
_WITHOUT_WORK = frozenset(_NO_WORK_NAMES)
_PLAIN_NAMES = (
    "Activation", "ReLU", "LeakyReLU", "ELU", "Softmax", "Add", "Subtract", "Multiply", "Average",
    "Maximum", "Minimum", "Concatenate", "Dot", "MaxPooling1D", "MaxPooling2D", "MaxPooling3D",
    "AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "GlobalAveragePooling1D",
    "GlobalAveragePooling2D", "GlobalAveragePooling3D", "GlobalMaxPooling1D", "GlobalMaxPooling2D",
    "GlobalMaxPooling3D", "ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D", "Cropping1D", "Cropping2D",
    "Cropping3D", "UpSampling1D", "UpSampling2D", "UpSampling3D", "UnitNormalization", "Normalization",
    "Attention",
)  # fmt: skip
_PLAIN = frozenset(_PLAIN_NAMES)
