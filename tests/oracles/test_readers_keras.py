"""The .keras reader against Keras: trainable parameters of files that Keras saves."""

from __future__ import annotations

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


@pytest.mark.parametrize("make", [image_model, text_model])
def test_a_file_has_the_trainable_parameters_of_its_model(make: Any, tmp_path: Path) -> None:
    model = make()
    model.save(tmp_path / "m.keras")
    expected = sum(int(value.numpy().size) for value in model.trainable_weights)
    assert count.parameters(read_model(str(tmp_path / "m.keras"))) == expected
