"""Configurations in .keras files are read, and nothing in them is run."""

from __future__ import annotations

import contextlib
import json
import zipfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.models import count
from raceline.models.graph import Model
from raceline.models.read import read_model
from raceline.present.errors import InputError


def layer(kind: str, shape: list[int | None], **config: Any) -> dict[str, Any]:
    return {
        "class_name": kind,
        "config": {"name": kind.lower(), **config},
        "build_config": {"input_shape": shape},
    }


def sequential(*layers: dict[str, Any]) -> dict[str, Any]:
    return {"class_name": "Sequential", "config": {"name": "s", "layers": list(layers)}}


def start(shape: list[int | None], dtype: str = "float32") -> dict[str, Any]:
    return {"class_name": "InputLayer", "config": {"batch_shape": shape, "dtype": dtype}}


def read(folder: Path, config: Any) -> Model:
    path = folder / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("config.json", config if isinstance(config, bytes) else json.dumps(config))
    return read_model(str(path))


def refused(folder: Path, config: Any) -> str:
    with pytest.raises(InputError) as caught:
        read(folder, config)
    return caught.value.message.id


def test_dense_layers_are_counted(tmp_path: Path) -> None:
    model = read(tmp_path, sequential(start([None, 10]), layer("Dense", [None, 10], units=5)))
    assert (count.parameters(model), count.flops(model)) == (55, 2 * 10 * 5)


def test_text_grows_with_its_open_length(tmp_path: Path) -> None:
    table = layer("Embedding", [None, None], input_dim=50, output_dim=8)
    model = read(
        tmp_path, sequential(start([None, None], "int32"), table, layer("Dense", [None, None, 8], units=4))
    )
    assert count.flops(model, 1, 10) == 2 * 10 * 8 * 4


def test_a_convolution_follows_its_strides(tmp_path: Path) -> None:
    conv = layer("Conv2D", [None, 8, 8, 3], filters=4, kernel_size=[3, 3], strides=[2, 2], padding="same")
    model = read(tmp_path, sequential(start([None, 8, 8, 3]), conv))
    assert (count.parameters(model), count.flops(model)) == (3 * 9 * 4 + 4, 2 * 4 * 4 * 27 * 4)


def functional(*layers: dict[str, Any]) -> dict[str, Any]:
    """Layers in a row that name the one before them, as a functional model does."""
    for before, after in pairwise(layers):
        history = {
            "class_name": "__keras_tensor__",
            "config": {"keras_history": [before["config"]["name"], 0, 0]},
        }
        after["inbound_nodes"] = [{"args": [history], "kwargs": {}}]
    return {"class_name": "Functional", "config": {"name": "f", "layers": list(layers)}}


@pytest.mark.parametrize("build", [sequential, functional])
def test_an_open_image_is_followed_through_the_network(tmp_path: Path, build: Any) -> None:
    shape = [None, None, None, 3]
    first = layer("Conv2D", shape, filters=4, kernel_size=[3, 3], strides=[2, 2], padding="same")
    pool = {**layer("MaxPooling2D", [None, None, None, 4], pool_size=[2, 2], padding="valid")}
    last = layer("Conv2D", [None, None, None, 4], filters=5, kernel_size=3)
    last["config"]["name"] = "last"
    entry = start(shape)  # type: ignore[arg-type]
    entry["config"]["name"] = "start"
    path = tmp_path / "m.keras"
    assert refused(tmp_path, build(entry, first, pool, last)) == "models.keras_open_size"
    model = read_model(str(path), image_size=16)
    convolved = 8 * 8 * 27 * 4 + 2 * 2 * 36 * 5
    assert count.flops(model) == pytest.approx(2 * convolved, rel=0.02)
    assert model.image_size == 16


def test_einsum_dense_sums_over_what_the_result_lacks(tmp_path: Path) -> None:
    einsum = layer("EinsumDense", [None, 3, 4], equation="abc,cd->abd", output_shape=[None, 7], bias_axes="d")
    model = read(tmp_path, sequential(start([None, 3, 4]), einsum))
    assert (count.parameters(model), count.flops(model)) == (4 * 7 + 7, 2 * 3 * 4 * 7)


def test_a_wrapped_layer_has_its_own_weights(tmp_path: Path) -> None:
    inner = {"class_name": "Dense", "config": {"name": "d", "units": 3}}
    model = read(
        tmp_path, sequential(start([None, 4]), layer("SpectralNormalization", [None, 4], layer=inner))
    )
    assert count.parameters(model) == 15


@pytest.mark.parametrize(("kind", "parameters"), [("Relu", 5), ("Matmul", None)])
def test_an_operation_without_weights_passes_unless_it_multiplies(
    tmp_path: Path, kind: str, parameters: int | None
) -> None:
    operation = {"module": "keras.src.ops.nn", "class_name": kind, "config": {"name": "op"}}
    config = sequential(start([None, 4]), layer("Dense", [None, 4], units=1), operation)
    if parameters is None:
        assert refused(tmp_path, config) == "models.keras_layer"
    else:
        assert count.parameters(read(tmp_path, config)) == parameters


def test_lambda_code_is_not_run(tmp_path: Path) -> None:
    code = {"class_name": "__lambda__", "config": {"code": "aW1wb3J0IG9zCg=="}}
    model = read(tmp_path, sequential(start([None, 4]), layer("Lambda", [None, 4], function=code),
                                      layer("Dense", [None, 4], units=1)))  # fmt: skip
    assert count.parameters(model) == 5


def test_a_layer_that_nobody_knows_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path, sequential(start([None, 4]), layer("Mine", [None, 4]))) == "models.keras_layer"


def test_a_bomb_is_not_unpacked(tmp_path: Path) -> None:
    assert refused(tmp_path, b" " * 50_000_000) == "present.too_large"


def test_deep_models_end(tmp_path: Path) -> None:
    config = sequential()
    for _ in range(24):
        config = sequential(config)
    assert refused(tmp_path, config) == "present.too_deep"


@pytest.mark.parametrize(
    "config",
    [[], {}, {"class_name": 3, "config": {}}, sequential(), b"{", b'{"a": 1, "a": 2}', b"[" * 1000,
     sequential(layer("Dense", [None, 4], units=-1)), sequential(layer("Dense", [None, 4], units=10**30)),
     sequential(layer("Dense", [None, -4], units=1)), sequential(layer("Dense", "abc", units=1))],  # type: ignore[arg-type]
)  # fmt: skip
def test_a_wrong_configuration_is_refused(tmp_path: Path, config: Any) -> None:
    refused(tmp_path, config)


@given(st.sampled_from(["Conv2D", "ZeroPadding2D", "UpSampling2D", "Conv2DTranspose", "MaxPooling2D"]),
       st.recursive(st.none() | st.integers(), lambda inner: st.lists(inner, max_size=3)),
       st.sampled_from(["kernel_size", "strides", "padding", "size", "pool_size", "dilation_rate"]))  # fmt: skip
def test_any_open_network_is_read_or_refused(
    tmp_path_factory: Any, kind: str, value: Any, field: str
) -> None:
    shape = [None, None, None, 3]
    network = sequential(start(shape), layer(kind, shape, **{"filters": 2, "kernel_size": 3, field: value}))
    folder = tmp_path_factory.mktemp("keras")
    with contextlib.suppress(InputError):
        read(folder, network)
    with contextlib.suppress(InputError):
        read_model(str(folder / "m.keras"), image_size=16)


@given(st.sampled_from(["Dense", "Conv2D", "LSTM", "MultiHeadAttention", "Bidirectional"]),
       st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)),
       st.sampled_from(["units", "kernel_size", "filters", "num_heads", "layer"]))  # fmt: skip
def test_any_layer_is_read_or_refused(tmp_path_factory: Any, kind: str, value: Any, field: str) -> None:
    with contextlib.suppress(InputError):
        read(
            tmp_path_factory.mktemp("keras"),
            sequential(start([None, 4]), layer(kind, [None, 4, 4], **{field: value})),
        )
