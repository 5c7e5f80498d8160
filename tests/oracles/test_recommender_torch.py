"""DLRM against a plain PyTorch module: parameters, FLOPs, and what autograd keeps."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
]
sys.path.insert(0, str(Path(__file__).parent))

import text_measure  # noqa: E402

from raceline.models import count  # noqa: E402
from raceline.models.families import registry  # noqa: E402
from raceline.models.fields import Fields  # noqa: E402

BATCH, DENSE, WIDTH, ROWS, LOOKUPS = 64, 13, 32, [1000, 200, 50, 400], 3
BOTTOM, TOP = [64, WIDTH], [96, 48, 1]
CROSSES, RANK = 2, 24


def _network(given: int, widths: list[int], ends_in_relu: bool) -> Any:
    layers: list[Any] = []
    for width in widths:
        layers += [torch.nn.Linear(given, width), torch.nn.ReLU()]
        given = width
    return torch.nn.Sequential(*(layers if ends_in_relu else layers[:-1]))


class _Dlrm(torch.nn.Module):
    """Dense features, sums of looked-up rows, pairs or cross layers, and a rank."""

    def __init__(self, is_cross: bool) -> None:
        super().__init__()
        vectors = len(ROWS) + 1
        crossed = vectors * WIDTH
        self.tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(rows, WIDTH, mode="sum") for rows in ROWS)
        self.bottom = _network(DENSE, BOTTOM, True)
        given = crossed if is_cross else vectors * (vectors - 1) // 2 + WIDTH
        self.top = _network(given, TOP, False)
        pairs = range(CROSSES if is_cross else 0)
        self.low = torch.nn.ModuleList(torch.nn.Linear(crossed, RANK, bias=False) for _ in pairs)
        self.high = torch.nn.ModuleList(torch.nn.Linear(RANK, crossed) for _ in pairs)
        self.lower = torch.tril_indices(vectors, vectors, -1)

    def _crossed(self, vectors: Any) -> Any:
        first = x = vectors.flatten(1)
        for low, high in zip(self.low, self.high, strict=True):
            x = first * high(low(x)) + x
        return x

    def forward(self, dense: Any, ids: Any, labels: Any) -> Any:
        bottom = self.bottom(dense)
        looked_up = [table(part) for table, part in zip(self.tables, ids, strict=True)]
        vectors = torch.stack([bottom, *looked_up], dim=1)
        if self.low:
            x = self._crossed(vectors)
        else:
            products = vectors @ vectors.transpose(1, 2)
            x = torch.cat([bottom, products[:, self.lower[0], self.lower[1]]], dim=1)
        return torch.nn.functional.binary_cross_entropy_with_logits(self.top(x)[:, 0], labels)


@pytest.mark.parametrize("kind", ["dot", "dcn"])
def test_dlrm_agrees_with_a_plain_module(kind: str) -> None:
    config = {
        "model_type": "dlrm", "interaction": kind, "table_rows": ROWS, "embedding_dim": WIDTH,
        "num_dense_features": DENSE, "lookups": LOOKUPS, "bottom_mlp": BOTTOM, "top_mlp": TOP,
        "cross_layers": CROSSES, "cross_rank": RANK,
    }  # fmt: skip
    ours, theirs = registry.build_model(Fields(config)), _Dlrm(kind == "dcn")
    ids = [torch.randint(0, rows, (BATCH, LOOKUPS)) for rows in ROWS]
    batch = {"dense": torch.randn(BATCH, DENSE), "ids": ids, "labels": torch.rand(BATCH)}
    assert count.parameters(ours) == text_measure.parameters(theirs)
    assert count.flops(ours, BATCH) == pytest.approx(text_measure.forward_flops(theirs, batch), rel=0.01)
    kept, shapes = text_measure.saved(theirs, batch)
    assert count.saved_bytes(ours, BATCH, precision="fp32") == pytest.approx(kept, rel=0.05), shapes
