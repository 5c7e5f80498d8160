"""Files that somebody made to hurt a reader, each small on disk, and a program that reads them in turn."""

from __future__ import annotations

import io
import json
import struct
import sys
import time
import zipfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 160, "vocab_size": 100}  # fmt: skip
CONFIGS = {
    "deep": b'{"a":' * 1000 + b"1" + b"}" * 1000, "duplicate": b'{"model_type": "llama", "model_type": "gpt2"}',
    "truncated": json.dumps(LLAMA).encode()[:-20], "empty": b"", "binary": bytes(range(256)) * 100,
    "negative": json.dumps({**LLAMA, "hidden_size": -64}).encode(), "endless number": b'{"a": ' + b"9" * 10**6 + b"}",
    "huge": json.dumps({**LLAMA, "num_hidden_layers": 10**30}).encode(), "nan": b'{"hidden_size": NaN}',
    "text": json.dumps({**LLAMA, "vocab_size": "many"}).encode(), "list": b"[" + b"{}," * 400_000 + b"{}]",
    "path": json.dumps({"weight_map": {"x": "../../etc/passwd"}}).encode(),
}  # fmt: skip
_DEEP = json.dumps({"class_name": "Sequential", "config": {"layers": []}}).encode()
_BOMB = b"a0: &a0 [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"a%d: &a%d [%s]\n" % (at, at, b",".join([b"*a%d" % (at - 1)] * 9)) for at in range(1, 12)
)
SCENARIOS = {
    "bomb": _BOMB, "deep": b"[" * 1000, "deep blocks": b"- " * 1000 + b"x", "duplicate": b"id: a\nid: b\n",
    "truncated": b"model: {a: [", "tag": b"model: !!python/object/apply:os.system [ls]\n", "many": b"- 1\n" * 60_000,
    "binary": bytes(range(256)), "negative": b"model: llama-3.1-8b\nhardware: {accelerator: h100-sxm, count: -8}\n",
    "huge": b"model: llama-3.1-8b\nworkload: {seq_len: 1%s}\n" % (b"0" * 300),
}  # fmt: skip
LINES = {
    "deep": b"[" * 1000 + b"\n", "binary": bytes(range(256)), "endless line": b'{"a":"' + b"x" * (3 * 2**20),
    "truncated": b'{"model": "llama-3.1-8b", "workload"',
}  # fmt: skip


def _safetensors(header: bytes, length_bytes: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length_bytes is None else length_bytes) + header


def _tensor(**changed: Any) -> bytes:
    entry = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16], **changed}
    return _safetensors(json.dumps({"x.weight": entry}).encode()) + b"\0" * 16


WEIGHTS = {
    "declared 2 GB": _safetensors(b"{}", 2**31), "declared 8 EB": _safetensors(b"{}", 2**63), "short": b"\0\0",
    "truncated": _safetensors(b'{"x": {"dty', 400), "deep": _safetensors(b"[" * 1000),
    "duplicate": _safetensors(b'{"a": 1, "a": 2}'), "negative": _tensor(shape=[-1, 4]),
    "huge": _tensor(shape=[10**9, 10**9]), "outside": _tensor(data_offsets=[0, 10**12]),
    "backwards": _tensor(data_offsets=[16, 0]), "overlong": _tensor(shape=[10**6]),
    "many": _safetensors(b"{" + b",".join(b'"%d":{}' % at for at in range(300_000)) + b"}"),
}  # fmt: skip
_KEY = struct.pack("<IQQQ1s", 3, 1, 1, 1, b"k")
GGUF = {
    "declared 2 GB": _KEY + struct.pack("<IQ", 8, 2**31), "many tensors": struct.pack("<IQQ", 3, 2**40, 0),
    "many entries": struct.pack("<IQQ", 3, 0, 2**62), "deep": _KEY + struct.pack("<IIQ", 9, 9, 1) * 1000,
    "long array": _KEY + struct.pack("<IIQ", 9, 8, 2**60), "version": struct.pack("<IQQ", 77, 1, 1), "short": b"\3",
    "empty texts": _KEY + struct.pack("<IIQ", 9, 8, 1_400_000) + bytes(8 * 1_400_000),
    "numbers": _KEY + struct.pack("<IIQ", 9, 4, 10**7) + bytes(4 * 10**7),
    "wide arrays": _KEY + (struct.pack("<IIQ", 9, 9, 100_000) + struct.pack("<IQ", 0, 0) * 100_000),
}  # fmt: skip
NETWORKS = {
    "deep": b"[" * 1000, "duplicate": b'{"a": 1, "a": 2}', "truncated": _DEEP[:-3],
    "huge": json.dumps({"class_name": "Sequential", "config": {"layers": [
        {"class_name": "Dense", "config": {"units": 10**30}, "build_config": {"input_shape": [None, -4]}}]}}).encode(),
}  # fmt: skip
_WRAPPED: dict[str, Any] = {"class_name": "Dense", "config": {"units": 4}}
for _ in range(45):
    _WRAPPED = {
        "class_name": "Bidirectional",
        "config": {"layer": _WRAPPED},
        "build_config": {"input_shape": [1, 4]},
    }
for _name, _layers in (
    ("wrapped", [_WRAPPED]),
    ("layers", [{"class_name": "Flatten", "config": {}}] * 20_000),
):
    NETWORKS[_name] = json.dumps({"class_name": "Sequential", "config": {"layers": _layers}}).encode()


def _zipped(data: bytes, kind: int = zipfile.ZIP_DEFLATED, repeat: int = 1) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", kind) as archive, archive.open("config.json", "w") as member:
        for _ in range(repeat):
            member.write(data)
    return made.getvalue()


def _hidden_size(archive: bytes) -> bytes:
    """The archive, whose directory says that its member has 10 bytes."""
    at = archive.rindex(b"PK\1\2") + 24
    return archive[:at] + struct.pack("<I", 10) + archive[at + 4 :]


def write(folder: Path) -> list[Path]:
    """Every file, in a folder of its own where its name is fixed."""
    files = {f"{name}/config.json": data for name, data in CONFIGS.items()}
    files |= {f"{name}.yaml": data for name, data in SCENARIOS.items()}
    files |= {f"{name}.jsonl": data for name, data in LINES.items()}
    files |= {f"{name}.safetensors": data for name, data in WEIGHTS.items()}
    files |= {f"{name}.gguf": b"GGUF" + data for name, data in GGUF.items()}
    files |= {f"{name}.keras": _zipped(data) for name, data in NETWORKS.items()}
    blank = b" " * 2**20
    files["bomb.keras"] = _zipped(blank, repeat=300)
    files["secret bomb.keras"] = _hidden_size(files["bomb.keras"])
    files["lzma.keras"] = _zipped(blank, zipfile.ZIP_LZMA)
    files["half.keras"] = _zipped(_DEEP)[:60]
    for name, data in files.items():
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(data)
    return [folder / name for name in files]


def _highest_memory_mib() -> float:
    """The most memory that this program held. `getrusage` counts what its parent held before it too."""
    status = Path("/proc/self/status").read_text()
    return float(status.partition("VmHWM:")[2].split()[0]) / 1024


def main(paths: list[str]) -> None:
    """Read each file as a person would, and print what came of it: a line of JSON a file."""
    from raceline.cli import run

    for path in paths:
        command = "estimate" if path.endswith((".yaml", ".jsonl")) else "describe"
        said, printed, started = io.StringIO(), io.StringIO(), time.process_time()
        with redirect_stderr(said), redirect_stdout(printed):
            code = run([command, path])
        row = {"code": code, "seconds": time.process_time() - started, "said": said.getvalue(),
               "printed": printed.getvalue()[:200]}  # fmt: skip
        row["memory_mib"] = _highest_memory_mib()
        sys.stdout.write(json.dumps({"path": path, **row}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
