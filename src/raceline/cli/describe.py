"""`raceline describe`: what a model is made of."""

from __future__ import annotations

import click

from raceline.cli.output import show


@click.command("describe")
@click.argument("model")
@click.option("--seq-len", type=click.IntRange(1, 10**8), help="Tokens in a sample.")
@click.option("--batch", type=click.IntRange(1, 10**7), default=1, show_default=True, help="Samples.")
@click.option("--image-size", type=click.IntRange(8, 16384), help="Side of an image in pixels.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(model: str, seq_len: int | None, batch: int, image_size: int | None, as_json: bool) -> None:
    """Parameters, FLOPs, bytes and activations of MODEL, in total and block by block.

    MODEL is a bundled name (llama-3.1-8b), a config.json, a model folder, a .safetensors, .gguf,
    .onnx, .keras or .pt2 file, hf:ORG/NAME, timm:NAME, or module:function.
    """
    from raceline.models.describe import describe

    found = describe(model, batch=batch, seq_len=seq_len, image_size=image_size)
    show(found, as_json=as_json, view=found.view)
