"""Configurations in .keras files are read, and nothing in them is run."""

from __future__ import annotations

import contextlib
import json
import zipfile
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


@given(st.sampled_from(["Dense", "Conv2D", "LSTM", "MultiHeadAttention", "Bidirectional"]),
       st.recursive(st.none() | st.integers() | st.text(max_size=3), lambda inner: st.lists(inner, max_size=3)),
       st.sampled_from(["units", "kernel_size", "filters", "num_heads", "layer"]))  # fmt: skip
def test_any_layer_is_read_or_refused(tmp_path_factory: Any, kind: str, value: Any, field: str) -> None:
    with contextlib.suppress(InputError):
        read(
            tmp_path_factory.mktemp("keras"),
            sequential(start([None, 4]), layer(kind, [None, 4, 4], **{field: value})),
        )
