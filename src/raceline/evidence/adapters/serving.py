"""Language models served (``serving.csv``): time to the first token and per output token at one concurrency.

How the columns relate, as read from the rows: `concurrency` counts the whole service's sequences, and
batch x attention_dp (with pools: x decode workers) is that number. A worker has tp x pp x attention_dp devices, over
which experts are spread moe_tp x moe_ep. Three groups of rows print something else:

- Where an engine was started with both tensor and expert parallelism, one table multiplied the two: 8 devices under
  ``tp8_ep8`` are printed as tp 64 with moe 8 x 8, and by vLLM as tp 8 x attention_dp 8. The id keeps what the
  engine was told.
- Numbers such as tp 36 are the devices of a service of several workers; how they were split isn't printed.
- Pools without a number of workers print neither attention_dp nor the experts of the decode pool. A fifth of them
  are runs that another row prints in full (`completed`).

No column says whether an engine speculated, which halves the time of a token. DeepSeek-R1's runs stand in the table
of all; those without speculation are printed again as DeepSeek-V3's. Of 2026's, 424 are in both, and physics meets them
within a tenth; 758 are only in R1's, and take 0.6 to 0.7 times as long as without.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from raceline.evidence import exclusions
from raceline.evidence.rows import Measured, Metric, Row
from raceline.present.errors import InputError

Meaning = TypeVar("Meaning")

COLUMNS = frozenset(
    {
        "id",
        "engine",
        "engine_version",
        "mode",
        "input_len",
        "output_len",
        "concurrency",
        "moe_tp",
        "ttft_ms",
        "tpot_ms",
    }
)
TABLE = "serving"
SOURCE = "aiconfigurator-silicon"
SOURCE_URL = "https://github.com/ai-dynamo/aiconfigurator"
ENGINES = {"trtllm": "tensorrt-llm", "sglang": "sglang", "vllm": "vllm"}
# Of a matmul's operands and of the stored weights. Int4 is weight only.
PRECISIONS = {
    "fp8": ("fp8", "fp8"), "fp4": ("nvfp4", "nvfp4"), "int4": ("bf16", "int4"), "bf16": ("bf16", "bf16"),
}  # fmt: skip
METRICS: tuple[Metric, ...] = ("ttft_ms", "tpot_ms")
DEVICES_OF_A_WORKER = 8
# Where pools aren't stated: clients from which on attention is by data parallelism, workers of a quiet service,
# and the most devices that compute prompts, as in the services of this table that state them.
BUSY, QUIET_WORKERS, MOST_READERS = 128, 4, 40
# Models with a layer that predicts a second token; engines use it since about this date, and no column says so.
PREDICTS_AHEAD, PREDICTED_SINCE = "DeepSeek", "2026"
# Engines that compute in 8 or 4 bits keep the cache in fp8, but not here: where requests begin to wait for room tells
# (Llama 3.1 70B in fp8: 75 run at once on one B200, 47 on one H200, but 30 on two H100).
WIDE_CACHES = ("h100-sxm",)
# Benchmarks with these lengths draw each from 80 to 100 % of them: InferenceX, RANDOM_RANGE_RATIO=0.8.
LENGTHS_DRAWN, MEAN_LENGTH = {1024, 8192}, 0.9
_LAUNCH = re.compile(r"_tp(\d+)(?:_0)?_ep(\d+)")


def adapt(record: Mapping[str, str]) -> Row:
    """One record as a row."""
    assumed: list[str] = []
    unscored = exclusions.named(record["id"]) or _why_unscored(record)
    engine = _word(ENGINES, "engine", record["engine"])
    measured_on = record.get("measured_on") or ""
    return Row(
        id=record["id"], table=TABLE, source=SOURCE, source_url=SOURCE_URL,
        year=int(measured_on[:4]) if measured_on else None, model=record["model"],
        accelerator=record["accelerator"], framework=engine, note=record["mode"],
        scenario=None if unscored else _scenario(record, engine, assumed),
        measured=tuple(Measured(name, float(record[name])) for name in METRICS if record.get(name)),
        assumed=tuple(assumed), unscored=unscored, doubtful=_doubt(record),
    )  # fmt: skip


def _word(words: Mapping[str, Meaning], field: str, given: str) -> Meaning:
    if given not in words:
        raise InputError("evidence.word_unknown", field=field, given=given, known=", ".join(words))
    return words[given]


def _number(record: Mapping[str, str], name: str, default: int = 1) -> int:
    """A count; blank and 0 are not stated."""
    return int(float(record.get(name) or 0)) or default


def _has_workers(record: Mapping[str, str]) -> bool:
    return bool(record.get("prefill_workers")) and bool(
        record.get("decode_workers") or record.get("decode_batch")
    )


def _why_unscored(record: Mapping[str, str]) -> str | None:
    if not any(record.get(name) for name in METRICS):
        return "no_value"
    if not _number(record, "concurrency", 0):
        return "no_concurrency"
    if record["mode"] == "agg":
        return "layout_not_stated" if _launched(record)[0] > DEVICES_OF_A_WORKER else None
    if _has_workers(record):
        return None
    prefill, decode = _number(record, "prefill_tp"), _number(record, "decode_tp")
    is_total = prefill == decode > DEVICES_OF_A_WORKER and _number(record, "prefill_moe_ep") == 1
    return "layout_not_stated" if is_total or prefill == decode == 1 else None


def _doubt(record: Mapping[str, str]) -> str | None:
    if record["mode"] == "disagg" and not _has_workers(record):
        return "workers"
    return "speculation" if _is_late(record) else None


def _is_late(record: Mapping[str, str]) -> bool:
    return (record.get("measured_on") or "") >= PREDICTED_SINCE and PREDICTS_AHEAD in record["model"]


def _speculates(record: Mapping[str, str]) -> bool:
    return _is_late(record) and record.get("plain") == ""


def _scenario(record: Mapping[str, str], engine: str, assumed: list[str]) -> dict[str, Any]:
    setup, count = (_one_pool if record["mode"] == "agg" else _two_pools)(record, assumed)
    precision = record.get("precision")
    if not precision:
        precision = "bf16"
        assumed.append(f"precision={precision}")
    matmul, weights = _word(PRECISIONS, "precision", precision)
    setup |= {"runtime": engine, "precision": matmul, "weight_precision": weights}
    if matmul != "bf16" and record["accelerator"] not in WIDE_CACHES:
        setup["kv_precision"] = "fp8"
        assumed.append("kv_precision=fp8")
    if _speculates(record):
        setup["draft_tokens"] = 1
        assumed.append("draft_tokens=1")
    if record.get("engine_version"):
        setup["runtime_version"] = record["engine_version"]
    input_len, output_len = _number(record, "input_len"), _number(record, "output_len")
    if {input_len, output_len} <= LENGTHS_DRAWN:
        input_len, output_len = round(input_len * MEAN_LENGTH), round(output_len * MEAN_LENGTH)
        assumed += [f"input_len={input_len}", f"output_len={output_len}"]
    return {
        "id": record["id"],
        "model": record["model"],
        "workload": {
            "task": "infer",
            "input_len": input_len,
            "output_len": output_len,
            "concurrency": _number(record, "concurrency"),
        },
        "hardware": {"accelerator": record["accelerator"], "count": count},
        "setup": setup,
    }


def _launched(record: Mapping[str, str]) -> tuple[int, int]:
    """Devices of the replica and its expert parallelism, as the engine was told."""
    words = _LAUNCH.search(record["id"])
    if words:
        return int(words[1]), int(words[2])
    tp, ranks = _number(record, "tp"), _number(record, "attention_dp")
    moe_tp, moe_ep = _number(record, "moe_tp"), _number(record, "moe_ep")
    if moe_tp == moe_ep > 1 and tp * ranks == moe_tp * moe_ep:
        return moe_ep, moe_ep
    if tp == ranks > 1 and moe_ep == tp * ranks:
        return tp, tp
    if not record.get("attention_dp") and (moe_tp * moe_ep) % tp == 0:
        return max(tp, moe_tp * moe_ep), moe_ep
    return tp * ranks, moe_ep if (tp * ranks) % moe_ep == 0 else 1


def _one_pool(record: Mapping[str, str], assumed: list[str]) -> tuple[dict[str, Any], int]:
    """Every worker computes prompts and generates."""
    devices, ep = _launched(record)
    share = _number(record, "concurrency") // _number(record, "batch", _number(record, "concurrency"))
    ranks = _attention_ranks(record, devices, share, assumed)
    replicas = share if ranks == 1 and share > devices else 1
    setup: dict[str, Any] = {"tp": devices // ranks, "pp": _number(record, "pp"), "ep": ep}
    if ep > 1 or ranks > 1:
        setup["expert_tp"] = devices // ep
    if ranks > 1:
        setup["attention_dp"] = ranks
    if replicas > 1:
        setup["dp"] = replicas
        assumed.append(f"dp={replicas}")
    return setup, devices * setup["pp"] * replicas


def _attention_ranks(record: Mapping[str, str], devices: int, share: int, assumed: list[str]) -> int:
    """Groups that attend to sequences of their own: all devices or one group. Where the column is blank, experts
    over more devices than tp tell, or a batch below the concurrency; where it multiplies tensor parallelism its
    table did so by itself."""
    if not record.get("attention_dp"):
        ranks = devices if share == devices > 1 else max(1, devices // _number(record, "tp"))
        assumed.append(f"attention_dp={ranks}")
        return ranks
    if _number(record, "attention_dp") > 1 and _number(record, "tp") > 1:
        assumed.append("attention_dp=1")
        return 1
    return devices if _number(record, "attention_dp") > 1 else 1


def _two_pools(record: Mapping[str, str], assumed: list[str]) -> tuple[dict[str, Any], int]:
    """Some workers compute prompts, others generate."""
    if _has_workers(record):
        pools = {side: _stated_pool(record, side) for side in ("prefill", "decode")}
        if not record.get("decode_workers"):
            workers = _workers_by_batch(record, pools["decode"])
            pools["decode"]["workers"] = workers
            assumed.append(f"decode.workers={workers}")
    else:
        pools = {side: _assumed_pool(record, side, assumed) for side in ("prefill", "decode")}
    count = sum(pool["workers"] * pool["tp"] * pool["pp"] * pool["attention_dp"] for pool in pools.values())
    return dict(pools), count


def _stated_pool(record: Mapping[str, str], side: str) -> dict[str, Any]:
    names = {
        "workers": "workers", "batch": "batch", "tp": "tp", "pp": "pp", "attention_dp": "attention_dp",
        "expert_tp": "moe_tp", "ep": "moe_ep",
    }  # fmt: skip
    return {name: _number(record, f"{side}_{column}") for name, column in names.items()}


def _workers_by_batch(record: Mapping[str, str], pool: Mapping[str, Any]) -> int:
    together = int(pool["batch"] * pool["attention_dp"])
    return max(1, _number(record, "concurrency") // together)


def _assumed_pool(record: Mapping[str, str], side: str, assumed: list[str]) -> dict[str, Any]:
    """Devices of a worker are printed; the rest is as in the services whose pools are stated. Wide workers and
    those of busy services attend by data parallelism, with experts on all devices; others are cut by tensor
    parallelism, and TensorRT-LLM's quiet services have several of them."""
    devices, busy = _number(record, f"{side}_tp"), _number(record, "concurrency") >= BUSY
    is_dynamo, spread = record["engine"] == "trtllm", _number(record, "prefill_moe_ep") > 1
    reads_by_data = side == "prefill" and is_dynamo and spread
    ranks = devices if devices > DEVICES_OF_A_WORKER or busy or reads_by_data else 1
    ep = devices if ranks > 1 or spread else 1
    if side == "prefill":
        workers = _assumed_readers(record, devices)
    else:
        quiet = is_dynamo and ranks == 1
        workers = min(QUIET_WORKERS, _number(record, "concurrency")) if quiet else 1
    assumed += [f"{side}.workers={workers}", f"{side}.attention_dp={ranks}"]
    return {
        "workers": workers, "tp": devices // ranks, "pp": _number(record, f"{side}_pp"), "attention_dp": ranks,
        "expert_tp": devices // ep, "ep": ep,
    }  # fmt: skip


def _assumed_readers(record: Mapping[str, str], devices: int) -> int:
    """Workers that compute prompts: a device for 25 clients whose prompts are longer than their answers, for
    500 others, at most 40 devices."""
    is_long = _number(record, "input_len") > 2 * _number(record, "output_len")
    wanted = _number(record, "concurrency") / (25 if is_long else 500)
    return max(1, round(min(wanted, MOST_READERS) / devices))


def completed(records: Iterable[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Records without their pools' workers take the pools from a record of the same run that has them: same
    accelerator, lengths and concurrency, and both latencies to four digits."""
    listed = _with_speculation(list(records))
    stated = {
        _run(record): record for record in listed if record.get("mode") == "disagg" and _has_workers(record)
    }
    return [_with_pools(record, stated.get(_run(record))) for record in listed]


def _with_speculation(records: list[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Late runs of DeepSeek with `plain`: one table prints those without speculation again as V3's; a run that isn't
    in it (blank) is taken to speculate."""
    plain = {_run(record) for record in records if "V3" in (record.get("model") or "")}
    return [{**record, "plain": "1" if _run(record) in plain else ""} for record in records]


def _run(record: Mapping[str, str]) -> tuple[str, ...]:
    names = ("engine", "accelerator", "input_len", "output_len", "concurrency", *METRICS)
    return tuple(_digits(record.get(name) or "") for name in names)


def _digits(text: str) -> str:
    try:
        return f"{float(text):.4g}"
    except ValueError:
        return text


def _with_pools(record: Mapping[str, str], twin: Mapping[str, str] | None) -> Mapping[str, str]:
    if twin is None or record.get("mode") != "disagg" or _has_workers(record):
        return record
    pools = {name: value for name, value in twin.items() if name.startswith(("prefill_", "decode_"))}
    return {**record, **pools}
