"""Small PyTorch programs that the readers' oracles read in every format."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

TOKENS = 16


class Residual(nn.Module):
    """A convolution with batch normalisation beside a shortcut."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.norm(self.conv(x)))


class Block(nn.Module):
    """A pre-norm transformer layer with fused attention."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        core = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(core.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Language(nn.Module):
    """A small causal language model with a tied head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(100, 32)
        self.layers = nn.ModuleList(Block(32, 4) for _ in range(3))
        self.head = nn.Linear(32, 100, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def mlp() -> Any:
    """Three layers, inputs left to the reader."""
    return nn.Sequential(nn.Linear(10, 20), nn.ReLU(), nn.Linear(20, 5))


def cnn() -> Any:
    """A small residual network and an image."""
    layers = [nn.Conv2d(3, 16, 3, stride=2), *(Residual(16) for _ in range(3))]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)), torch.zeros(
        1, 3, 32, 32
    )


def language() -> Any:
    """A language model and token ids."""
    return Language(), torch.zeros(1, TOKENS, dtype=torch.int64)


PROGRAMS = {"mlp": mlp, "cnn": cnn, "language": language}


def parts(name: str) -> tuple[nn.Module, torch.Tensor]:
    """The module and its inputs."""
    made = PROGRAMS[name]()
    return made if isinstance(made, tuple) else (made, torch.zeros(1, 10))
