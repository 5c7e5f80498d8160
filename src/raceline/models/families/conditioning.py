"""What denoisers are told beside the latent (step, text, label), and the loss that they are trained on."""

from __future__ import annotations

from raceline.models.families.layers import Part, elementwise, join, linear, tensor
from raceline.models.fields import Fields
from raceline.models.graph import SAMPLE, Extent, Loss

TEXT_TOKENS = 77
PIXELS_PER_LATENT = 8
STEP_WIDTH = 256


def notes(fields: Fields) -> tuple[str, ...]:
    """What to say of a bundled denoiser that stands for its pipeline (`denoiser_alone`)."""
    return ("models.denoiser_alone",) if fields.flag("denoiser_alone") else ()


def text_tokens(fields: Fields, default: int) -> int:
    """Tokens of text beside an image (`max_sequence_length`, as pipelines call it)."""
    return int(fields.integer("max_sequence_length", default=default, minimum=0, maximum=100_000))


def embedded(name: str, width: int, inner: int, *, rows: Extent = SAMPLE) -> Part:
    """Two projections with an activation between them, of one vector a sample (or of each token of a text)."""
    return join(
        tensor(f"{name}_given", width, rows),
        linear(f"{name}_embedder_1", f"{name}_given", width, inner, rows=rows, bias=True, out=f"{name}_up"),
        elementwise(f"{name}_activation", inner, inner, rows=rows, keeps=(f"{name}_up",)),
        tensor(f"{name}_hidden", inner, rows),
        linear(f"{name}_embedder_2", f"{name}_hidden", inner, inner, rows=rows, bias=True),
    )


def shared(name: str, width: int, rows: Extent, *, for_weight: bool = False) -> Part:
    """A tensor that many blocks read and that is kept once. `for_weight`: nothing before it is trained, so
    that only the gradients of weights need it."""
    own, weights = ((), (name,)) if for_weight else ((name,), ())
    read = elementwise(f"{name}_shared", 0, 0, rows=rows, keeps=own, keeps_for_weight=weights)
    return join(tensor(name, width, rows), read)


def squared_error(width: int, rows: Extent) -> Part:
    """The loss of a denoiser: the squared error in fp32, which keeps both its inputs."""
    return join(
        tensor("predicted", 2.0 * width, rows, "fp32"),
        elementwise("squared_error", 2.0 * width, width, keeps=("predicted",), rows=rows),
        Part((Loss(name="loss", rows=SAMPLE, classes=1),)),
    )
