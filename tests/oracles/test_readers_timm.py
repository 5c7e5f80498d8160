"""The timm reader against timm: parameters and FLOPs as PyTorch counts them."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
timm = pytest.importorskip("timm")
pytestmark = pytest.mark.filterwarnings("ignore")

from torch.utils.flop_counter import FlopCounterMode  # noqa: E402

from raceline.models import count  # noqa: E402
from raceline.models.read import read_model  # noqa: E402
from raceline.present.errors import InputError  # noqa: E402


@pytest.mark.parametrize(
    "name", ["resnet18", "vit_tiny_patch16_224", "swin_tiny_patch4_window7_224", "efficientnet_b0"]
)
def test_a_name_has_the_parameters_and_flops_of_its_module(name: str) -> None:
    with torch.device("meta"):
        module = timm.create_model(name, pretrained=False)
    with FlopCounterMode(display=False) as counter:
        module(torch.zeros(1, 3, 224, 224, device="meta"))
    model = read_model(f"timm:{name}")
    assert count.parameters(model) == sum(value.numel() for value in module.parameters())
    assert count.flops(model) == pytest.approx(counter.get_total_flops(), rel=1e-6)


def test_a_convolutional_network_takes_another_image_size() -> None:
    assert count.flops(read_model("timm:resnet18", image_size=448)) > 3.9 * count.flops(
        read_model("timm:resnet18")
    )


def test_an_unknown_name_lists_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        read_model("timm:resnet51x")
    assert "resnet50" in caught.value.message.params["nearest"]
