"""Curves of single kernels against points of the tables they were fitted to.

The points are measurements published with aiconfigurator-core 0.12.0 (Apache-2.0, NVIDIA):
systems/data/<system>/<topic>/<engine>/<version>, in seconds.
"""

import msgspec
import numpy as np
import pytest

from raceline.catalog.load import accelerators
from raceline.estimate import kernels

ACCELERATORS = accelerators()
ALL_KINDS = ("matmul", "experts", "prefill", "latent_prefill", "decode", "latent_decode", "collective")


def arranged(*ids: str, linked: bool = True) -> kernels.Kernels:
    return kernels.arrange([ACCELERATORS[name] for name in ids], [linked] * len(ids))


def one(curve, column=None):
    """The constants of the first device as plain numbers."""
    index = (0,) if column is None else (0, column)
    names = type(curve).__dataclass_fields__
    return type(curve)(**{name: getattr(curve, name)[index] for name in names})


def matmul(name, number_class, m, n, k):
    device = ACCELERATORS[name]
    peak = {"16bit": device.bf16_dense_tflops, "8bit": device.fp8_dense_tflops}[number_class] * 1e12
    width = {"16bit": 2.0, "8bit": 1.0}[number_class]
    curve = one(arranged(name).matmul, kernels.CLASSES.index(number_class))
    moved = n * k * width + (m * k + m * n) * 2.0
    return kernels.matmul_seconds(curve, np.float64(m), n, k, peak, moved, device.memory_bw_gbs * 1e9)


@pytest.mark.parametrize(
    ("name", "number_class", "m", "n", "k", "measured_s", "tolerance"),
    [
        # h100_sxm/gemm/vllm/0.24.0
        ("h100-sxm", "16bit", 1, 8192, 8192, 51.6e-6, 0.1),
        ("h100-sxm", "16bit", 1024, 8192, 8192, 164.0e-6, 0.15),
        ("h100-sxm", "16bit", 8192, 8192, 8192, 1541.7e-6, 0.15),
        # b200_sxm/gemm/sglang/0.5.14
        ("b200", "8bit", 1, 7168, 7168, 15.6e-6, 0.2),
        ("b200", "8bit", 8192, 7168, 7168, 320.6e-6, 0.2),
        # a100_sxm/gemm/vllm/0.14.0
        ("a100-sxm-80gb", "16bit", 16, 4096, 4096, 26.6e-6, 0.2),
        ("a100-sxm-80gb", "16bit", 4096, 4096, 4096, 539.5e-6, 0.1),
    ],
)
def test_matmul_is_as_long_as_measured(name, number_class, m, n, k, measured_s, tolerance):
    assert matmul(name, number_class, m, n, k) == pytest.approx(measured_s, rel=tolerance)


@pytest.mark.parametrize("number_class", ["16bit", "8bit"])
def test_more_rows_never_take_less_time(number_class):
    rows = np.geomspace(1, 65536, 60)
    for name in ("h100-sxm", "b200", "l40s", "mi300x"):
        assert (np.diff(matmul(name, number_class, rows, 4096, 4096)) > 0).all()


def test_prefill_attention_is_as_long_as_measured():
    # h200_sxm/attention/vllm/0.24.0: one sequence of 8192, 32 heads of 128, 8 key heads
    length, heads, kv, head = 8192.0, 32.0, 8.0, 128.0
    device = ACCELERATORS["h200-sxm"]
    curve = one(arranged("h200-sxm").prefill)
    bounds = kernels.prefill_bounds(
        curve, 2.0 * heads * length * (length + 1) / 2 * 2 * head, heads * length, length, head,
        device.bf16_dense_tflops * 1e12, length * (2 * heads + 2 * kv) * head * 2, device.memory_bw_gbs * 1e9,
    )  # fmt: skip
    assert kernels.together(*bounds) + curve.floor_s == pytest.approx(938e-6, rel=0.15)


def test_decode_attention_is_as_long_as_measured():
    # h200_sxm/attention/vllm/0.24.0: 64 sequences with 4096 positions, 32 heads of 128, 8 key heads
    batch, keys, heads, kv, head = 64.0, 4096.0, 32.0, 8.0, 128.0
    device = ACCELERATORS["h200-sxm"]
    curve = one(arranged("h200-sxm").decode)
    bounds = kernels.decode_bounds(
        curve, 4.0 * batch * heads * keys * head, batch * kv, keys, device.bf16_dense_tflops * 1e12,
        batch * keys * kv * 2 * head * 2, device.memory_bw_gbs * 1e9,
    )  # fmt: skip
    total = kernels.together(*bounds) + curve.floor_s + curve.row_s * batch * heads
    assert total == pytest.approx(271e-6, rel=0.2)


@pytest.mark.parametrize(("tokens", "measured_s"), [(1, 48.8e-6), (64, 443.9e-6), (4096, 983.9e-6)])
def test_experts_are_as_long_as_measured(tokens, measured_s):
    # h100_sxm/moe/vllm/0.24.0, power_law_1.01: 8 of 128 experts of 2048 x 768 (Qwen3 30B)
    device = ACCELERATORS["h100-sxm"]
    curve = one(arranged("h100-sxm").experts, kernels.CLASSES.index("16bit"))
    total = kernels.gated_expert_seconds(
        curve, np.float64(tokens * 8), 128.0, 2048.0, 768.0, device.bf16_dense_tflops * 1e12, 2.0,
        device.memory_bw_gbs * 1e9,
    )  # fmt: skip
    assert total == pytest.approx(measured_s, rel=0.35)


def test_collectives_are_as_long_as_measured():
    curve = arranged("h100-sxm").collective
    link = ACCELERATORS["h100-sxm"].intra_link_gbs_per_dir * 1e9
    # h100_sxm/comm/nccl/2.29.2, all_reduce of 32 MiB over 8; comm/vllm/0.24.0, 128 KiB in a graph
    for operation, payload, measured_s in (
        ("all_reduce", 2.0**25, 199.8e-6),
        ("engine_all_reduce", 2.0**17, 7.9e-6),
    ):
        row = one(curve, kernels.COLLECTIVES.index(operation))
        found = kernels.collective_seconds(row, operation, np.float64(payload), np.float64(8), link)
        assert found == pytest.approx(measured_s, rel=0.4)


def test_one_device_needs_no_collective():
    row = one(arranged("h100-sxm").collective, 0)
    assert kernels.collective_seconds(row, "all_reduce", np.float64(1e9), np.float64(1), 1e11) == 0.0


def test_unknown_architecture_takes_the_curves_of_any():
    table = kernels.load()
    known = {row.family for row in table.curves["matmul"]}
    assert ACCELERATORS["mi300x"].architecture not in known
    for kind in ("prefill", "decode"):
        assert table.values(kind, kernels.families(ACCELERATORS["mi300x"]), "*") == table.values(
            kind, (), "*"
        )


def test_workstation_blackwell_has_curves_of_its_own():
    both = arranged("b200", "rtx-pro-6000-ws").matmul.compute[:, kernels.CLASSES.index("16bit")]
    assert both[0] != both[1]
    assert kernels.families(ACCELERATORS["rtx-5090"])[0] == "Blackwell/12"


def test_cards_without_a_link_talk_over_pcie():
    rates = [arranged("h100-sxm", linked=linked).collective.rate8[0, 0] for linked in (True, False)]
    assert rates[0] > 5 * rates[1]


def test_every_kind_has_rows_for_any_architecture_with_their_error():
    table = kernels.load()
    assert set(table.curves) == set(ALL_KINDS)
    for kind, rows in table.curves.items():
        assert any(row.family == kernels.ANY for row in rows), kind
        for row in rows:
            assert row.points >= 50 and row.error is not None and row.error[0] < 0.4, (kind, row.family)
            assert all(value >= 0 for value in row.values.values())


def test_table_states_package_licence_and_versions():
    table = kernels.load()
    assert table.package["name"] == "aiconfigurator-core" and table.package["licence"] == "Apache-2.0"
    assert "vllm" in table.read["h100_sxm"]
    assert msgspec.json.decode(msgspec.json.encode(table), type=kernels.Table) == table
