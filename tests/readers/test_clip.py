"""A video model at another number of frames."""

from __future__ import annotations

import pytest

from raceline.models.count import parameters
from raceline.models.read import read_model
from raceline.models.readers import clip
from raceline.present.errors import InputError


def rows(reference: str) -> int:
    model = read_model(reference, image_size=480)
    return int(max(tensor.rows.fixed for block in model.blocks for tensor in block.tensors))


def test_positions_follow_the_frames() -> None:
    short, long = (rows(clip.reference("wan2.1-t2v-1.3b", frames)) for frames in (41, 81))
    assert short == 11 * 30 * 30 and long == 21 * 30 * 30


def test_parameters_do_not() -> None:
    name = "wan2.1-t2v-1.3b"
    assert parameters(read_model(clip.reference(name, 17))) == parameters(read_model(name))


@pytest.mark.parametrize("text", ["", "[]", '{"model":"wan2.1-t2v-1.3b"}', '{"model":"x","frames":0}'])
def test_what_is_no_clip_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"frames|model"):
        read_model("clip:" + text)


def test_a_model_without_frames_is_refused() -> None:
    with pytest.raises(InputError, match="clip_without_frames"):
        read_model(clip.reference("llama-3.1-8b", 5))


def test_every_bundled_video_model_takes_frames() -> None:
    for name in ("hunyuanvideo-1.5", "kandinsky5-video-2b", "ltxvideo-0.9.5", "sanavideo-2b", "cogvideox-2b"):
        assert read_model(clip.reference(name, 49)).blocks != read_model(clip.reference(name, 113)).blocks
