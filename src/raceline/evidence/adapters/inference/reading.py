"""One record of an inference table with what its source leaves out, each gap noted as assumed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from raceline.catalog import load, resolve
from raceline.catalog.types import Accelerator
from raceline.evidence.adapters.inference import saturation
from raceline.evidence.adapters.inference.words import Format, ModelWord, Usual, runtime_of, says, words
from raceline.models import names, read
from raceline.models.graph import Model
from raceline.present.errors import InputError

_MEANS = re.compile(r"mean prompt (\d+) and output (\d+) tokens")
_OUTPUT = re.compile(r"mean output (\d+) tokens")
_DEPTH = re.compile(r"at depth (\d+)")
_RATES = {
    "fp32": "fp32_tflops", "tf32": "tf32_tflops", "fp16": "fp16_dense_tflops", "bf16": "bf16_dense_tflops",
    "fp8": "fp8_dense_tflops", "int8": "int8_dense_tops", "nvfp4": "fp4_dense_tflops",
}  # fmt: skip
_INSTEAD = {
    "nvfp4": ("fp8", "bf16", "fp16"), "fp8": ("bf16", "fp16"), "int8": ("fp16", "bf16"), "bf16": ("fp16",),
    "fp16": ("bf16",), "tf32": ("fp32",), "fp32": (),
}  # fmt: skip
_POOLS = re.compile(r"(\d+)P(\d+)D, prefill and decode workers")
_SENT = re.compile(r"(\d+) requests sent at once")
_THREADS = re.compile(r"(\d+) threads")
_INSTANCES = re.compile(r"perf_analyzer, online;.* (\d+) instance\(s\)")
# Samples that Triton merges into one pass of the TFT server ("Max batch size" of
# https://github.com/NVIDIA/DeepLearningExamples/blob/master/PyTorch/Forecasting/TFT/triton/README.md).
MOST_MERGED = 1024
# MLPerf's 3D-UNet computes a whole brain volume at once (BraTS 2019) up to round 1.1, and windows of other
# volumes (KiTS 2019) from 2.0 on, whatever the row calls it:
# https://github.com/mlcommons/inference/tree/master/vision/medical_imaging/3d-unet-kits19
WHOLE_VOLUMES, BRAIN_MODEL = ("mlperf-inference-v1.1", "3d-unet-kits19"), "3d-unet-brats19"


class Unscored(Exception):
    """The row can't be scored, by the rule that it names."""

    def __init__(self, rule: str) -> None:
        super().__init__(rule)
        self.rule = rule


class Reading:
    """A record's cells as numbers and words. `assumed` grows with what had to be filled in."""

    def __init__(self, record: Mapping[str, str]) -> None:
        self.record = record
        self.note = record.get("note", "")
        self.source = record.get("source", "")
        self.usual = words().sources.get(self.source, Usual())
        self.assumed: list[str] = []
        self.runtime = runtime_of(record.get("runtime", ""), record.get("framework", ""))
        self.framework = record.get("framework", "").lower()
        self.word = self._model_word()
        self.model = self._model()
        self.accelerator = self._accelerator()
        self.count = self.number("count") or 1

    def number(self, name: str) -> int | None:
        """A cell as a whole number; None where it is empty or zero."""
        text = self.record.get(name, "")
        return (int(float(text)) or None) if text.replace(".", "", 1).isdigit() else None

    def assume(self, name: str, value: object) -> None:
        """Note a setting that the source leaves out."""
        if (line := f"{name}={value}") not in self.assumed:
            self.assumed.append(line)

    @property
    def generates(self) -> bool:
        """Whether the model answers token by token."""
        return self.model.objective in ("causal", "seq2seq")

    @property
    def transcribes(self) -> bool:
        """Whether the answer is what was said in a recording."""
        return "whisper" in self.record["model"].lower()

    @property
    def is_forward_only(self) -> bool:
        """A language model that reads a segment and writes nothing (Transformer-XL's evaluation)."""
        return self.model.objective == "causal" and "transformer-xl" in self.record["model"]

    @property
    def is_saturated(self) -> bool:
        """Whether more requests wait than run."""
        return says(self.note, "queues") or "mlperf" in self.source

    @property
    def depth(self) -> int:
        """Tokens that stand in the cache before llama-bench starts to count."""
        found = _DEPTH.search(self.note)
        return int(found.group(1)) if found else 0

    @property
    def prefills(self) -> bool:
        """Whether a prompt is computed and nothing is written."""
        return self.record["metric"] == "prefill_tokens_per_s"

    def _model_word(self) -> ModelWord:
        whole = self.record["model"]
        if (self.source, whole) == WHOLE_VOLUMES:
            self.assume("model", BRAIN_MODEL)
            return ModelWord(BRAIN_MODEL)
        name = whole if whole in words().models else whole.partition("@")[0]
        known = words().models.get(name)
        if known is None:
            return ModelWord(name)
        self.assume("model", known.model)
        return known

    def _model(self) -> Model:
        found = _read(self.word.model)
        if found is None:
            raise Unscored("model_unknown")
        return found

    @property
    def device(self) -> str:
        """The device's word; a board's processor where that is what ran."""
        name = self.record["accelerator"]
        return words().processors.get(name, name) if "(cpu)" in self.framework else name

    def _accelerator(self) -> Accelerator:
        try:
            found = _resolve(self.device)
        except InputError:
            raise Unscored("device_unknown") from None
        if found.memory_bw_gbs is None or found.memory_gib is None:
            raise Unscored("device_unknown")
        if found.kind != "cpu" and "(cpu)" in self.framework:
            raise Unscored("device_unknown")
        return found

    @property
    def prefills_one_by_one(self) -> bool:
        """Whether a first token is timed for one user whatever the batch (tt-metal's demos)."""
        return self.runtime == "tt-metal" and self.record["metric"] == "ttft_ms"

    def pools(self) -> dict[str, Any]:
        """Pools of prefill and decode workers of a disaggregated service."""
        found = _POOLS.search(self.note)
        if found is None:
            return {}
        tp = self.number("tp") or 1
        return {
            "prefill": {"workers": int(found.group(1)), "tp": tp},
            "decode": {"workers": int(found.group(2)), "tp": tp},
        }

    @property
    def cores(self) -> int | None:
        """Cores that computed, where fewer than half of a processor's did."""
        found, cores = _THREADS.search(self.note), _cores(self.accelerator.id)
        threads = int(found.group(1)) if found and self.accelerator.kind == "cpu" else 0
        return threads if not self.generates and 0 < threads * 2 < cores else None

    def lengths(self) -> tuple[int, int]:
        """Tokens of the prompt and of the answer."""
        if self.transcribes:
            raise Unscored("answer_length_unknown")
        given, asked = self.number("input_len"), self.number("output_len")
        if found := _MEANS.search(self.note):
            return max(1, int(found.group(1))), max(1, int(found.group(2)))
        if found := _OUTPUT.search(self.note):
            asked = int(found.group(1))
        if given is None and asked is None and (varying := self._varying()):
            self.assume("input_len", varying[0])
            self.assume("output_len", varying[1])
            return varying
        if given is None and self.record.get("input_len") != "0":
            given = self.usual.input_len or self.number("seq_len")
            self.assume("input_len", given or 1)
        if asked is None and self.record.get("output_len") != "0" and self.usual.output_len:
            asked = self.usual.output_len
            self.assume("output_len", asked)
        return max(given or 1, 0 if self.prefills else self.depth), asked or 1

    def _varying(self) -> tuple[int, int] | None:
        by_model = words().lengths.get(self.source.partition("-")[0], {})
        if self.record["model"] in by_model:
            return by_model[self.record["model"]]
        return words().sharegpt if says(self.note, "chats") else None

    def seq_len(self) -> int | None:
        """Length of an encoder's input; None for images."""
        if self.model.unit != "token":
            return self.word.seq_len
        if stated := self.number("seq_len"):
            return self._unpadded(stated)
        found = self.word.seq_len or self.usual.seq_lens.get(self.record["model"], self.usual.seq_len)
        if found is None:
            raise Unscored("length_unknown")
        self.assume("seq_len", found)
        return found

    def _unpadded(self, padded: int) -> int:
        """The mean length where the engine drops padding."""
        if says(self.note, "halves_length"):
            return max(1, padded // 2)
        if says(self.note, "drops_padding") and self.runtime == "tensorrt":
            self.assume("seq_len", words().squad_tokens)
            return words().squad_tokens
        return padded

    @property
    def most_sequences(self) -> int:
        """The engine's own limit on sequences at once, and the number of requests where it is printed."""
        large = (self.accelerator.memory_gib or 0.0) >= 70 and not self.accelerator.id.startswith("a100")
        name = f"{self.runtime}-large"
        known = words().most_sequences
        is_large = large and name in known and self.record.get("year", "") >= "2025"
        most = known[name] if is_large else known.get(self.runtime, saturation.MOST_IF_UNKNOWN)
        sent = _SENT.search(self.note)
        return min(most, int(sent.group(1))) if sent else most

    @property
    def outstanding(self) -> int:
        """Samples that clients wait for at once, each sending its next request when the last is answered;
        0 where one client asks or the server isn't said to merge requests."""
        clients = self.number("concurrency") or 1
        return (self.number("batch") or 1) * clients if clients > 1 and _INSTANCES.search(self.note) else 0

    def _merged(self) -> int:
        """Samples of one pass: the instances of the model share those that wait."""
        found = _INSTANCES.search(self.note)
        merged = min(MOST_MERGED, max(1, self.outstanding // int(found.group(1) if found else 1)))
        self.assume("batch", merged)
        return merged

    def image_size(self) -> int | None:
        """Side in pixels where the record or its model's word has one."""
        stated = self.number("image_size") or self.word.size
        if stated is None and "x" in self.record.get("image_size", ""):
            self.assume("image_size", self.model.image_size)
        return stated if self.model.image_size and self.model.objective != "rank" else None

    def batch(self) -> int:
        """Samples of one pass, for models that answer in one."""
        if self.outstanding:
            return self._merged()
        stated = self.number("batch") or self.usual.batch
        if stated is None:
            stated = self._free_batch()
            self.assume("batch", stated)
        elif self.number("batch") is None:
            self.assume("batch", stated)
        return stated

    def _free_batch(self) -> int:
        free = words().free_batches
        if self.model.objective in ("denoise", "rank"):
            return free[self.model.objective]
        if self.accelerator.kind == "cpu":
            return free["cpu"]
        if self.model.unit == "token":
            return free["text"]
        return free["large" if (self.image_size() or self.model.image_size or 0) > 600 else "image"]

    def formats(self) -> Format:
        """Formats of arithmetic, weights and cache, as the device can have them."""
        word = self.record.get("precision", "") or self._usual_precision()
        if not word:
            self._check_rate(None)
            return (None, None, None)
        if "spars" in word or word == "autoquant":
            raise Unscored("compression_unstated")
        if word not in words().precisions:
            raise Unscored("precision_unknown")
        wanted, weight, cache = words().precisions[word]
        found = self.native(wanted)
        self._check_rate(found)
        return found, weight, cache

    def _check_rate(self, chosen: str | None) -> None:
        """A device of the catalogue must have a rate for the format, or for the one that is chosen."""
        if chosen is None and not any(self._has_rate(name) for name in ("bf16", "fp16", "fp32")):
            raise Unscored("device_unknown")

    def _usual_precision(self) -> str:
        word = self.usual.precision
        if self.accelerator.kind == "cpu" and "ultralytics" in self.source:
            word = "fp32"
        if word is None and "mlperf" in self.source:
            word = self._mlperf_precision()
        if word:
            self.assume("precision", word)
        return word or ""

    def _mlperf_precision(self) -> str:
        """The lowest format that the benchmark allows and the device has: FP4 and FP8 for language models
        and diffusion, INT8 for the others."""
        if self.accelerator.kind == "cpu":
            return "bf16"
        if not self.generates and self.model.objective != "denoise":
            return "int8" if self.accelerator.int8_dense_tops else "fp16"
        if self.accelerator.fp4_dense_tflops and self.generates and "mixtral" not in self.record["model"]:
            return "fp4"
        return "fp8" if self.accelerator.fp8_dense_tflops else "fp16"

    def native(self, wanted: str | None) -> str | None:
        """The format itself, or the next that the device has a rate for."""
        if wanted is None:
            return None
        base = wanted.removesuffix("-mixed")
        name = next((name for name in (base, *_INSTEAD[base]) if self._has_rate(name)), None)
        if name == base:
            return wanted
        self.assume("precision", name or "own")
        return name

    def _has_rate(self, name: str) -> bool:
        return bool(getattr(self.accelerator, _RATES[name], None))


@cache
def _cores(processor: str) -> int:
    row = load.cpus().get(processor)
    return (row.cores or 0) if row else 0


@cache
def _read(name: str) -> Model | None:
    """A bundled model only: a table's word is never opened as a file nor run as a function."""
    if not names.is_bundled(name):
        return None
    try:
        return read.read_listed(name)
    except InputError:
        return None


@cache
def _resolve(name: str) -> Accelerator:
    return resolve.accelerator_or_processor(name).accelerator


def plain_copy(scenario: dict[str, object]) -> dict[str, object]:
    """A part of a scenario without what is left open."""
    return {name: value for name, value in scenario.items() if value is not None}
