"""Rows of releases are made of the index's metadata: against recorded releases, served by a real server on loopback."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from raceline.present.errors import InputError
from raceline.stack import facts, pypi, refresh

RECORDED: dict[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "recorded_releases.json").read_text()
)
DATA = Path(refresh.__file__).parent / "data"
# what a person fills in from release notes and guides, or by judging
BY_HAND = {
    "torch": {
        "numpy_compat", "cuda_builds", "cudnn_per_build", "rocm_builds", "rocm_stable", "torchvision", "torchaudio",
    },
    "tensorflow": {
        "tested_python", "tested_compiler", "tested_cuda", "tested_cudnn", "tested_row", "native_windows_gpu",
    },
    "onnxruntime": {"pypi_cuda", "pypi_cudnn", "onnx_opset"},
    "jax": {
        "jaxlib_python_min", "jaxlib_python_max", "cuda12_plugin", "cuda12_cudnn", "cuda12_runtime",
        "min_driver_cuda12",
        "min_cc_cuda12", "cuda13_plugin", "cuda13_cudnn", "cuda13_runtime", "min_driver_cuda13", "min_cc_cuda13",
        "rocm7_plugin", "extras", "platforms", "glibc_min_x86_64",
    },
}  # fmt: skip
EVERYWHERE = {"as_of", "source_url", "notes"}


class Index(BaseHTTPRequestHandler):
    """The Simple API with the recorded releases; some names answer with a fault."""

    def do_GET(self) -> None:
        name = self.path.strip("/").split("/")[1] if self.path.startswith("/simple/") else ""
        if name == "vllm" and self.server.fault:  # type: ignore[attr-defined]
            self._answer(self.server.fault)  # type: ignore[attr-defined]
        elif name in RECORDED:
            self._answer(json.dumps({"files": self._files(name)}).encode())
        elif self.path.endswith(".metadata"):
            _, _, package, version, _ = self.path.split("/", 4)
            told = RECORDED[package][version]
            lines = [
                f"Requires-Python: {told['requires_python']}",
                *(f"Requires-Dist: {item}" for item in told["requires_dist"]),
            ]
            self._answer(("Metadata-Version: 2.1\n" + "\n".join(lines) + "\n\n").encode())
        else:
            self.send_error(404)

    def _files(self, name: str) -> list[dict[str, Any]]:
        return [
            {
                "filename": file[0], "upload-time": file[1], "requires-python": file[2], "yanked": file[3],
                "core-metadata": True,
                "url": f"/files/{name}/{version}/{file[0]}",
            }
            for version, told in RECORDED[name].items()
            for file in told["files"]
        ]  # fmt: skip

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nothing is written to the screen."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    """A real index on loopback."""
    found = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    found.fault = b""  # type: ignore[attr-defined]
    thread = threading.Thread(target=found.serve_forever, daemon=True)
    thread.start()
    yield found
    found.shutdown()
    found.server_close()
    thread.join()


def base(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}/simple"


@pytest.mark.parametrize(
    ("name", "version"), [(name, version) for name in RECORDED for version in RECORDED[name]]
)
def test_a_shipped_row_is_what_the_metadata_tells(
    server: ThreadingHTTPServer, name: str, version: str
) -> None:
    table = facts.PACKAGE_TABLES[name]
    columns, rows = refresh.read_table(DATA / f"{table}.csv")
    shipped = next(row for row in rows if row["version"] == version)
    listed = pypi.files(name, base(server))[Version(version)]
    made = refresh.row_of(name, Version(version), listed, pypi.metadata(listed), columns, "2026-12-01")
    skipped = EVERYWHERE | BY_HAND.get(table, set())
    assert {key: made[key] for key in columns if key not in skipped} == {
        key: shipped[key] for key in columns if key not in skipped
    }


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """The tables without their newest releases of vllm and torch."""
    folder = tmp_path / "data"
    shutil.copytree(DATA, folder)
    for name, newest in (("vllm", {"0.32.0", "0.33.0"}), ("torch", {"2.15.0"})):
        columns, rows = refresh.read_table(folder / f"{name}.csv")
        text = refresh.table_text(columns, [row for row in rows if row["version"] not in newest])
        (folder / f"{name}.csv").write_text(text)
    return folder


def test_new_releases_are_added_and_old_rows_stay(server: ThreadingHTTPServer, older: Path) -> None:
    before = (older / "vllm.csv").read_text()
    report = refresh.refresh(older, ["vllm", "torch"], "2026-12-01", base=base(server))
    assert report.new == {"vllm": ("0.32.0", "0.33.0"), "torch": ("2.15.0",)}
    after = (older / "vllm.csv").read_text()
    assert after.startswith(before)
    assert "0.33.0,2026-11-02" in after
    assert refresh.refresh(older, ["vllm"], "2026-12-01", base=base(server)).new == {"vllm": ()}


def test_looking_writes_nothing(server: ThreadingHTTPServer, older: Path) -> None:
    before = (older / "vllm.csv").read_text()
    report = refresh.refresh(older, ["vllm"], "2026-12-01", base=base(server), only_look=True)
    assert report.new["vllm"] == ("0.32.0", "0.33.0")
    assert (older / "vllm.csv").read_text() == before


@pytest.mark.parametrize("fault", [b"not json", b"[1, 2]", b"{" * 5000])
def test_a_broken_index_changes_nothing(server: ThreadingHTTPServer, older: Path, fault: bytes) -> None:
    server.fault = fault  # type: ignore[attr-defined]
    before = (older / "torch.csv").read_text()
    with pytest.raises(InputError) as told:
        refresh.refresh(older, ["torch", "vllm"], "2026-12-01", base=base(server))
    assert told.value.message.id == "stack.index_unreadable"
    assert (older / "torch.csv").read_text() == before


def test_an_endless_answer_is_cut_off(server: ThreadingHTTPServer, older: Path) -> None:
    server.fault = b"[" + b"0," * (pypi.LARGEST_BYTES // 2 + 1)  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="index_unreadable"):
        refresh.refresh(older, ["vllm"], "2026-12-01", base=base(server))


def test_an_address_does_not_bring_a_password_back() -> None:
    with pytest.raises(InputError) as told:
        pypi.files("torch", "http://user:secret@127.0.0.1:9/simple")
    assert "secret" not in str(told.value.message.params)


def test_a_package_without_a_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no_table"):
        refresh.refresh(tmp_path, ["left-pad"], "2026-12-01")
