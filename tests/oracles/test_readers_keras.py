"""The .keras reader against Keras: trainable parameters of files that Keras saves."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("KERAS_BACKEND", "jax")
keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore")

from raceline.models import count  # noqa: E402
from raceline.models.read import read_model  # noqa: E402


def image_model() -> Any:
    layers = keras.layers
    return keras.Sequential([
        layers.Input((32, 32, 3)), layers.Conv2D(16, 3, strides=2, padding="same", use_bias=False),
        layers.BatchNormalization(), layers.ReLU(), layers.DepthwiseConv2D(3, padding="same"),
        layers.SeparableConv2D(8, 3), layers.Conv2D(8, 3, groups=2), layers.Conv2DTranspose(4, 2, strides=2),
        layers.MaxPooling2D(), layers.GlobalAveragePooling2D(), layers.Dense(10, activation="softmax"),
    ])  # fmt: skip


def text_model() -> Any:
    layers = keras.layers
    ids = layers.Input((None,), dtype="int32")
    x = layers.Embedding(100, 32)(ids)
    x = layers.Add()([x, layers.MultiHeadAttention(4, 8)(x, x, use_causal_mask=True)])
    x = layers.LayerNormalization()(x)
    x = layers.Bidirectional(layers.LSTM(16, return_sequences=True))(x)
    x = layers.TimeDistributed(layers.Dense(12))(x)
    return keras.Model(ids, layers.Dense(3)(layers.GRU(12)(x)))


def volume_model() -> Any:
    layers = keras.layers
    given = layers.Input((8, 8, 8, 2))
    x = layers.GroupNormalization(2)(layers.Conv3D(4, 3, padding="same")(given))
    x = layers.Reshape((3, 4))(
        layers.Dense(12, use_bias=False)(layers.Flatten()(layers.AveragePooling3D(2)(x)))
    )
    x = layers.MultiHeadAttention(2, 4, value_dim=3)(x, x)
    x = layers.EinsumDense("abc,cd->abd", output_shape=(None, 7), bias_axes="d")(
        layers.LayerNormalization()(x)
    )
    return keras.Model(given, keras.ops.relu(layers.SpectralNormalization(layers.Dense(4))(x)) + 1.0)


def shared_model() -> Any:
    layers = keras.layers
    base = keras.Sequential([layers.Input((16,)), layers.Dense(8, activation="relu"), layers.Dense(8)])
    left, right = layers.Input((16,)), layers.Input((16,))
    return keras.Model([left, right], layers.Dense(1)(layers.Concatenate()([base(left), base(right)])))


def published(name: str) -> Any:
    return lambda: getattr(keras.applications, name)(weights=None)


PUBLISHED = ("MobileNetV2", "ConvNeXtTiny")


def test_an_open_image_counts_like_a_fixed_one(tmp_path: Path) -> None:
    for name, shape in (("open", (None, None, 3)), ("fixed", (224, 224, 3))):
        made = keras.applications.MobileNetV3Small(weights=None, input_shape=shape)
        made.save(tmp_path / f"{name}.keras")
    fixed = read_model(str(tmp_path / "fixed.keras"))
    opened = read_model(str(tmp_path / "open.keras"), image_size=224)
    assert count.flops(opened) == pytest.approx(count.flops(fixed), rel=1e-3)


@pytest.mark.parametrize(
    "make", [image_model, text_model, volume_model, shared_model, *map(published, PUBLISHED)],
    ids=["image", "text", "volume", "shared", *PUBLISHED],
)  # fmt: skip
def test_a_file_has_the_trainable_parameters_of_its_model(make: Any, tmp_path: Path) -> None:
    model = make()
    model.save(tmp_path / "m.keras")
    expected = sum(math.prod(value.shape) for value in model.trainable_weights)
    assert count.parameters(read_model(str(tmp_path / "m.keras"))) == expected
