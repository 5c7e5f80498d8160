"""What a denoiser was made for: the frames and pixels of its images or videos, and the places of their latents."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

from raceline.models.families.convnet import LARGEST_IMAGE
from raceline.models.families.images import image_size_of, patches_of, whole_numbers
from raceline.models.fields import Fields


class Made(NamedTuple):
    """`pixels`: along one side of a latent's place; `patch`: places along one side of a patch;
    `frames_per_latent`: after the first frame. One frame is a square image."""

    frames: int = 1
    height: int = 1024
    width: int = 1024
    pixels: int = 8
    patch: int = 2
    frames_per_latent: int = 4

    @property
    def is_video(self) -> bool:
        """Whether there is more than one frame."""
        return self.frames > 1


def sides(fields: Fields, image_size: int | None, made: Made) -> tuple[int, int]:
    """Height and width in pixels: the workload's square, the config's, or what the model was made for."""
    if not made.is_video:
        sample = fields.integer("sample_size", default=None, maximum=2048)
        own = made.pixels * sample if sample else made.height
        side = image_size_of(fields, image_size, min(max(own, made.height), LARGEST_IMAGE))
        return side, side
    if image_size:
        return image_size, image_size
    height = fields.integer("height", default=made.height, maximum=LARGEST_IMAGE)
    return height, fields.integer("width", default=made.width, maximum=LARGEST_IMAGE)


def positions(fields: Fields, image_size: int | None, made: Made) -> int:
    """Patches of one image or video."""
    height, width = (
        patches_of(patches_of(side, made.pixels), made.patch) for side in sides(fields, image_size, made)
    )
    frames = made.frames
    if made.is_video:
        frames = fields.integer("num_frames", "sample_frames", default=frames, maximum=100_000)
    return int(((frames - 1) // made.frames_per_latent + 1) * height * width)


def patch_elements(fields: Fields, default: int) -> int:
    """Places of a patch: the square of its side, or the product of its sides in a list."""
    if isinstance(fields.values.get("patch_size"), (list, tuple)):
        return prod(whole_numbers(fields, "patch_size", (), 64)[:3])
    return int(fields.integer("patch_size", default=default, maximum=64) ** 2)
