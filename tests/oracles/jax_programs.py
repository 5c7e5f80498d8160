"""Small JAX and Flax programs for the reader's oracle."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn
from flax import nnx

TOKENS = 16


def mlp() -> Any:
    """Plain JAX: a function, its parameters and an input."""
    shapes = {"a": (10, 20), "b": (20,), "c": (20, 5)}
    parameters = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}

    def apply(values: Any, x: Any) -> Any:
        return jax.nn.relu(x @ values["a"] + values["b"]) @ values["c"]

    return apply, parameters, jnp.zeros((1, 10))


class Images(nn.Module):
    """A small convolutional network."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.relu(nn.Conv(16, (3, 3), strides=2, padding="SAME")(x))
        x = nn.Conv(16, (3, 3), feature_group_count=4, padding="SAME", use_bias=False)(x)
        x = nn.BatchNorm(use_running_average=True)(x)
        return nn.Dense(10)(x.mean(axis=(1, 2)))


class Language(nn.Module):
    """A small transformer."""

    @nn.compact
    def __call__(self, ids: Any) -> Any:
        x = nn.Embed(100, 32)(ids)
        for _ in range(3):
            x = x + nn.MultiHeadDotProductAttention(num_heads=4)(nn.LayerNorm()(x))
            x = x + nn.Dense(32)(nn.gelu(nn.Dense(128)(nn.LayerNorm()(x))))
        return nn.Dense(100, use_bias=False)(x)


def images() -> Any:
    """A Flax module and an image."""
    return Images(), jnp.zeros((1, 32, 32, 3))


def language() -> Any:
    """A Flax module and token ids."""
    return Language(), jnp.zeros((1, TOKENS), jnp.int32)


def loop() -> Any:
    """Six layers in one scan, with a matrix that all of them share."""
    shapes = {"layers": (6, 32, 32), "shared": (32, 32)}
    parameters = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}

    def apply(values: Any, x: Any) -> Any:
        def layer(x: Any, matrix: Any) -> Any:
            return jnp.tanh(x @ matrix) @ values["shared"], None

        return jax.lax.scan(layer, x, values["layers"])[0]

    return apply, parameters, jnp.zeros((1, 32))


def attention() -> Any:
    """JAX's own attention between projections, on two samples."""
    parameters = {name: jax.ShapeDtypeStruct((256, 256), jnp.float32) for name in "qkvo"}

    def apply(values: Any, x: Any) -> Any:
        q, k, v = ((x @ values[name]).reshape(2, 64, 4, 64) for name in "qkv")
        return jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ values["o"]

    return apply, parameters, jnp.zeros((2, 64, 256))


def upsampling() -> Any:
    """A transposed convolution."""
    parameters = {"kernel": jax.ShapeDtypeStruct((3, 3, 8, 16), jnp.float32)}
    return (
        lambda values, x: jax.lax.conv_transpose(x, values["kernel"], (2, 2), "SAME"),
        parameters,
        jnp.zeros((1, 8, 8, 8)),
    )


class Normalised(nnx.Module):
    """A layer, batch normalisation and dropout in nnx."""

    def __init__(self, rngs: nnx.Rngs) -> None:
        self.up, self.down = nnx.Linear(16, 32, rngs=rngs), nnx.Linear(32, 4, rngs=rngs)
        self.norm, self.dropout = nnx.BatchNorm(32, rngs=rngs), nnx.Dropout(0.1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.down(self.dropout(nnx.relu(self.norm(self.up(x)))))


def normalised() -> Any:
    """An nnx module without storage, and features."""
    module = nnx.eval_shape(lambda: Normalised(nnx.Rngs(0)))
    return module, jax.ShapeDtypeStruct((1, 16), jnp.float32)
