"""A transformer from parts: the layer's arrangement, embeddings, head and loss, and the Model around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from raceline.models.families.layers import (
    Part,
    block,
    dropout,
    elementwise,
    join,
    linear,
    norm,
    residual,
    tensor,
)
from raceline.models.fields import Fields
from raceline.models.graph import TOKENS, Block, Embedding, Extent, Loss, Model

Make = Callable[[str, str], Part]
"""Builds a mixer or a feed-forward network from the name of its input and of its output."""

Arrangement = Literal["pre", "parallel", "parallel_two_norms", "sandwich", "post", "post_add"]


def layer(
    name: str,
    width: int,
    mixer: Make,
    feed: Make | None,
    *,
    arrangement: Arrangement = "pre",
    norm_kind: str = "rms",
    rows: Extent = TOKENS,
    dropped: float = 0.0,
    between: tuple[Make, str] | None = None,
    **rest: Any,
) -> Block:
    """One layer. pre: x + f(norm(x)). parallel: x + attention(norm(x)) + mlp(norm(x)), with one norm or
    two. sandwich: x + norm(f(norm(x))). post: x + norm(f(x)). post_add: norm(x + f(x)).
    `between`: cross-attention after the mixer, and the name of its norm. `feed` None: no second half."""
    build = _Layer(width, arrangement, norm_kind, rows, dropped)
    parts = [tensor("input", width, rows)]
    if arrangement.startswith("parallel"):
        assert feed is not None
        parts.append(build.parallel(mixer, feed))
    else:
        parts.append(build.half("attention", mixer, "input", "middle"))
        at = "middle"
        if between:
            parts.append(build.half("cross", between[0], at, "crossed"))
            at = "crossed"
        if feed is not None:
            parts.append(build.half("mlp", feed, at, "output"))
    return block(name, *parts, boundary="input", **rest)


class _Layer:
    """The halves of a layer under one arrangement."""

    def __init__(
        self, width: int, arrangement: Arrangement, norm_kind: str, rows: Extent, dropped: float
    ) -> None:
        self.width, self.arrangement, self.norm_kind = width, arrangement, norm_kind
        self.rows, self.dropped = rows, dropped

    def half(self, prefix: str, make: Make, given: str, out: str) -> Part:
        """Mixer or feed-forward with its norms, dropout and residual addition."""
        raw, normed = f"{prefix}_out", f"{prefix}_input"
        before = self.arrangement in ("pre", "sandwich")
        after = self.arrangement in ("sandwich", "post")
        added = f"{prefix}_sum" if self.arrangement == "post_add" else out
        return join(
            self._norm(f"{prefix}_norm", given, normed) if before else None,
            make(normed if before else given, raw),
            self._norm(f"{prefix}_post_norm", raw, f"{prefix}_normed") if after else None,
            dropout(f"{prefix}_dropout", self.width, self.dropped, self.rows),
            residual(f"{prefix}_add", self.width, added, self.rows),
            self._norm(f"{prefix}_norm", added, out) if self.arrangement == "post_add" else None,
        )

    def parallel(self, mixer: Make, feed: Make) -> Part:
        """Attention and feed-forward side by side on the same input."""
        two = self.arrangement == "parallel_two_norms"
        return join(
            self._norm("attention_norm", "input", "attention_input"),
            self._norm("mlp_norm", "input", "mlp_input") if two else None,
            mixer("attention_input", "attention_out"),
            feed("mlp_input" if two else "attention_input", "mlp_out"),
            dropout("dropout", self.width, self.dropped, self.rows),
            residual("attention_add", self.width, "middle", self.rows),
            residual("mlp_add", self.width, "output", self.rows),
        )

    def _norm(self, name: str, given: str, out: str) -> Part:
        return norm(name, given, out, self.width, kind=self.norm_kind, rows=self.rows)


def embedding(
    name: str,
    entries: int,
    width: int,
    *,
    rows: Extent = TOKENS,
    tied: bool = False,
    split: bool = True,
) -> Part:
    """A table that tokens (or positions) look up; its gradient needs the ids."""
    return Part(
        (
            Embedding(
                name=name,
                rows=rows,
                entries=entries,
                width=width,
                split="row" if split else "none",
                keeps_for_weight=(f"{name}_ids",) if split else (),
                tied=tied,
            ),
        ),
        tensor(f"{name}_ids", 1, rows, "int64").tensors,
    )


def rotary_tables(width: int) -> Part:
    """The cosines and sines that all layers share."""
    return join(
        elementwise("rotary_tables", 0, 2.0 * width, keeps=("rotary_tables",)),
        tensor("rotary_tables", 2.0 * width),
    )


def head(
    width: int,
    vocabulary: int,
    *,
    tied: bool,
    rows: Extent = TOKENS,
    bias: bool = False,
    given: str = "head_input",
    name: str = "lm_head",
    softcap: bool = False,
) -> Part:
    """The projection onto the vocabulary and the loss. Where transformers computes it: logits in the
    activations' type, a float copy that lives while the loss is computed, and the log-softmax, which
    stays for backward. A tied head holds no weights of its own."""
    projection = linear(
        name,
        given,
        width,
        vocabulary,
        rows=rows,
        bias=bias and not tied,
        split="column",
        quantisable=False,
        tied=tied,
        out="logits",
    )
    own_bias = elementwise("head_bias", vocabulary, vocabulary, rows=rows, parameters=vocabulary, split=True)
    return join(
        projection,
        own_bias if bias and tied else None,
        elementwise("softcap", vocabulary, vocabulary, keeps=("softcapped",), rows=rows, split=True)
        if softcap
        else None,
        tensor("softcapped", vocabulary, rows, split=True, eager=True) if softcap else None,
        loss(vocabulary, rows),
    )


def loss(classes: int, rows: Extent = TOKENS) -> Part:
    """Cross-entropy over `classes`."""
    return join(
        tensor("logits_fp32", classes, rows, "fp32", split=True, eager=True),
        tensor("log_probabilities", classes, rows, "fp32", split=True, eager=True),
        tensor("labels", 1, rows, "int64"),
        Part((Loss(name="loss", rows=rows, classes=classes, keeps=("log_probabilities", "labels")),)),
    )


def output_block(
    width: int, norm_kind: str | None, *parts: Part, rows: Extent = TOKENS, component: str = ""
) -> Block:
    """The final norm (None: there is none) and what follows it; these read `head_input`."""
    final = norm("final_norm", "last", "head_input", width, kind=norm_kind, rows=rows) if norm_kind else None
    own = tensor("last" if norm_kind else "head_input", width, rows)
    return block("output", own, final, *parts, role="output", component=component)


def grouped(layers: Sequence[Any]) -> list[tuple[Any, int]]:
    """Equal layers with their number, in the order of their first appearance. Order within the body
    changes no total, and a pattern of two kinds stays two rows instead of dozens."""
    counts: dict[Any, int] = {}
    for kind in layers:
        counts[kind] = counts.get(kind, 0) + 1
    return list(counts.items())


_PRECISIONS = {
    "bfloat16": "bf16",
    "float16": "fp16",
    "float32": "fp32",
    "half": "fp16",
    "float": "fp32",
    "float8_e4m3fn": "fp8",
}
_DEFAULT_SEQ_LEN = 2048
LENGTHS = (
    "max_position_embeddings",
    "n_positions",
    "n_ctx",
    "max_seq_len",
    "max_sequence_length",
    "seq_length",
)


def describe(fields: Fields, family: str, blocks: Sequence[Block], **rest: Any) -> Model:
    """The Model around these blocks: name, number format and lengths from the config's own fields."""
    longest = rest.pop("max_seq_len", None) or fields.integer(*LENGTHS, default=None)
    kind = fields.text("model_type", default=family)
    names = fields.items("architectures", default=[])
    architecture = names[0] if names and isinstance(names[0], str) else kind
    if fields.flag("assumed_shape"):
        rest["notes"] = (*rest.get("notes", ()), "models.shape_assumed")
    rest.setdefault("seq_len", min(longest or _DEFAULT_SEQ_LEN, _DEFAULT_SEQ_LEN))
    return Model(
        name=fields.text("_name_or_path", "name_or_path", default="") or kind,
        family=family,
        architecture=architecture,
        blocks=tuple(blocks),
        max_seq_len=longest,
        precision=_PRECISIONS.get(str(fields.values.get("torch_dtype") or fields.values.get("dtype"))),
        weight_format=weight_format(fields),
        **rest,
    )


def weight_format(fields: Fields) -> str | None:
    """The quantisation that a config's `quantization_config` states, as a WeightPrecision word."""
    part = fields.part("quantization_config", default=None)
    if part is None:
        return None
    method = part.text("quant_method", default="") or "unknown"
    bits = part.integer("bits", "w_bit", default=4, maximum=64)
    if method in ("gptq", "awq"):
        return f"{method}-int{bits}"
    if method == "bitsandbytes":
        return "nf4" if part.flag("load_in_4bit") else "int8"
    return str(method)
