"""RNN-T against torch's own LSTM layers: parameters on the meta device, and FLOPs of the dense layers."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from raceline.models import count, names  # noqa: E402
from raceline.models.families import registry  # noqa: E402
from raceline.models.fields import Fields  # noqa: E402

SMALL: dict[str, Any] = {
    "model_type": "rnn_t", "in_feats": 24, "n_classes": 50, "enc_n_hid": 32, "enc_pre_rnn_layers": 2,
    "enc_stack_time_factor": 4, "enc_post_rnn_layers": 3, "pred_n_hid": 16, "pred_rnn_layers": 2,
    "joint_n_hid": 20, "text_len": 7, "frames": 40,
}  # fmt: skip


def _transducer(config: dict[str, Any]) -> Any:
    """The modules that hold the reference's parameters."""
    nn, hidden, text = torch.nn, config["enc_n_hid"], config["pred_n_hid"]
    stacked = config["enc_stack_time_factor"] * hidden
    return nn.ModuleDict(
        {
            "pre_rnn": nn.LSTM(config["in_feats"], hidden, config["enc_pre_rnn_layers"]),
            "post_rnn": nn.LSTM(stacked, hidden, config["enc_post_rnn_layers"]),
            "embed": nn.Embedding(config["n_classes"] - 1, text),
            "dec_rnn": nn.LSTM(text, text, config["pred_rnn_layers"]),
            "joint_enc": nn.Linear(hidden, config["joint_n_hid"]),
            "joint_pred": nn.Linear(text, config["joint_n_hid"]),
            "joint_net": nn.Linear(config["joint_n_hid"], config["n_classes"]),
        }
    )


@pytest.mark.parametrize("config", [SMALL, names.find("rnn-t-mlperf").config], ids=["small", "mlperf"])
def test_an_rnnt_has_the_parameters_of_torchs_layers(config: dict[str, Any]) -> None:
    with torch.device("meta"):
        network = _transducer(config)
    model = registry.build_model(Fields(config))
    assert count.parameters(model) == sum(part.numel() for part in network.parameters())
    blocks = {row.name: row.parameters for row in count.rows(model)}
    for stack in ("pre_rnn", "post_rnn", "dec_rnn"):
        own = sum(size for name, size in blocks.items() if name.startswith(stack))
        assert own == sum(part.numel() for part in network[stack].parameters())


def test_the_joint_network_takes_the_flops_that_torch_counts() -> None:
    network, config = _transducer(SMALL), SMALL
    frames, pieces = config["frames"] // config["enc_stack_time_factor"], config["text_len"] + 1
    encoded, predicted = torch.randn(frames, config["enc_n_hid"]), torch.randn(pieces, config["pred_n_hid"])
    with FlopCounterMode(display=False) as counter:
        both = network["joint_enc"](encoded)[:, None] + network["joint_pred"](predicted)[None]
        network["joint_net"](both.relu())
    joint = count.rows(registry.build_model(Fields(config)))[-1]
    assert joint.flops == counter.get_total_flops()


def test_an_lstm_layer_takes_the_flops_of_its_cells() -> None:
    """torch.nn.LSTM is one kernel that its counter doesn't open; its cells are matrix products."""
    cell, width = torch.nn.LSTMCell(SMALL["in_feats"], SMALL["enc_n_hid"]), SMALL["enc_n_hid"]
    state = (torch.zeros(1, width), torch.zeros(1, width))
    with FlopCounterMode(display=False) as counter:
        for frame in torch.randn(SMALL["frames"], 1, SMALL["in_feats"]):
            state = cell(frame, state)
    first = count.rows(registry.build_model(Fields(SMALL)))[0]
    assert first.flops == counter.get_total_flops()
