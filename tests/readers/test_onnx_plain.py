"""Quantised and fused ONNX operators count like what they compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from raceline.models import count
from raceline.models.graph import Attention, Model, Op
from raceline.models.read import read_model
from readers.onnx_bytes import graph, node, port, weight

INT8, INT32, UINT8 = 3, 6, 2


@pytest.fixture
def read(tmp_path: Path) -> Any:
    def read(*parts: bytes) -> Model:
        file = tmp_path / "m.onnx"
        file.write_bytes(graph(*parts))
        return read_model(str(file))

    return read


def ops(model: Model, kind: type[Op]) -> list[Any]:
    return [op for block in model.blocks for op in block.ops if isinstance(op, kind)]


SCALES = (weight("s", 1), weight("z", 1, kind=INT8))


def test_a_quantised_convolution_counts_weights_and_bias_but_no_scales(read: Any) -> None:
    model = read(
        port("x", 2, 1, 3, 8, 8), weight("w", 4, 3, 1, 1, kind=INT8), weight("b", 4, kind=INT32), *SCALES,
        weight("ws", 4), node("QLinearConv", "x s z w ws z s z b", "y"),
    )  # fmt: skip
    assert (count.parameters(model), count.flops(model)) == (16, 2 * 64 * 3 * 4)
    assert model.weight_format == "int8"


def test_a_quantised_product_counts_like_a_plain_one(read: Any) -> None:
    product = node("QLinearMatMul", "x s z w s z s z", "y")
    model = read(port("x", 2, 1, 8), weight("w", 8, 5, kind=INT8), *SCALES, product)
    assert (count.parameters(model), count.flops(model)) == (40, 80)


def test_weights_dequantised_before_use_are_parameters(read: Any) -> None:
    turned = node("DequantizeLinear", "w s z", "v")
    model = read(
        port("x", 1, 1, 8), weight("w", 8, 5, kind=INT8), *SCALES, turned, node("MatMul", "x v", "y")
    )
    assert (count.parameters(model), count.flops(model), model.weight_format) == (40, 80, "int8")


def test_four_bit_weights_have_the_size_that_their_attributes_state(read: Any) -> None:
    packed = weight("w", 64, 2, 16, kind=UINT8)
    product = node("MatMulNBits", "x w scales", "y", K=64, N=64, bits=4, block_size=32)
    model = read(port("x", 1, 1, 64), packed, weight("scales", 128), product)
    assert (count.parameters(model), count.flops(model), model.weight_format) == (
        64 * 64,
        2 * 64 * 64,
        "int4",
    )


def test_grouped_attention_reads_one_packed_tensor(read: Any) -> None:
    attend = node("GroupQueryAttention", "q - - - - - - cos sin", "y", num_heads=4, kv_num_heads=2)
    product = node("MatMul", "y w", "z")
    model = read(
        port("q", 1, 1, 10, 64), weight("cos", 4096, 4), weight("sin", 4096, 4), weight("w", 32, 32), attend, product
    )  # fmt: skip
    op = ops(model, Attention)[0]
    assert (op.heads, op.kv_heads, op.head_dim, op.rows.fixed, op.causal) == (4, 2, 8, 10, True)
    assert count.parameters(model) == 32 * 32


def test_attention_with_its_projections_inside_is_taken_apart(read: Any) -> None:
    attend = node("Attention", "x w b", "y", num_heads=4)
    model = read(port("x", 1, 1, 10, 32), weight("w", 32, 96), weight("b", 96), attend)
    assert count.parameters(model) == 32 * 96 + 96
    assert count.flops(model) == 2 * 10 * 32 * 96 + 4 * 10 * 10 * 32


def test_a_fused_residual_norm_hands_its_sum_on(read: Any) -> None:
    norm = node("SkipSimplifiedLayerNormalization", "x x g", "n - - sum")
    model = read(port("x", 1, 1, 8), weight("g", 8), weight("w", 8, 8), norm, node("MatMul", "sum w", "y"))
    assert (count.parameters(model), count.flops(model)) == (72, 128)


def test_fused_embeddings_count_every_table(read: Any) -> None:
    tables = (
        weight("tokens", 50, 8),
        weight("places", 16, 8),
        weight("parts", 2, 8),
        weight("g", 8),
        weight("b", 8),
    )
    found = node("EmbedLayerNormalization", "ids kinds tokens places parts g b", "y")
    model = read(port("ids", 6, "n", "s"), port("kinds", 6, "n", "s"), *tables, found)
    assert count.parameters(model) == 68 * 8 + 16


def test_a_cache_starts_empty(read: Any) -> None:
    ports = (port("ids", 7, 1, "s"), port("k", 1, 1, 4, 10, 8), port("past", 1, 1, 4, "past_len", 8))
    join, turn = node("Concat", "past k", "keys", axis=2), node("MatMul", "keys w", "y")
    assert count.flops(read(*ports, weight("w", 8, 8), join, turn)) == 2 * 4 * 10 * 8 * 8


@pytest.mark.parametrize("equation", ["bij,bjk->bik", "bij,bjk", "...ij,...jk->...ik", "...ij,...jk"])
def test_a_sum_of_products_is_one_product(read: Any, equation: str) -> None:
    model = read(port("x", 1, 3, 4, 5), port("y", 1, 3, 5, 6), node("Einsum", "x y", "z", equation=equation))
    assert count.flops(model) == 2 * 4 * 5 * 6


def test_directions_of_a_recurrent_layer_are_counted(read: Any) -> None:
    parts = (port("x", 1, 7, 1, 8), weight("w", 2, 64, 8), weight("r", 2, 64, 16), weight("b", 2, 128))
    model = read(*parts, node("LSTM", "x w r b", "y state cell", hidden_size=16))
    assert count.parameters(model) == 2 * 64 * (8 + 16 + 2)
