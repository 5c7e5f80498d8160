"""Small JAX and Flax programs for the reader's oracle."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen as nn

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
