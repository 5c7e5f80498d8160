"""Rows of releases are made of the index's metadata: against recorded releases, served by a real server on loopback."""

from __future__ import annotations

import base64
import json
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from raceline.measure.environment import Environment
from raceline.present.errors import InputError
from raceline.stack import facts, limits, pypi, refresh

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
# rows of which a column was taken from the highest tag although that wheel serves later Pythons, too
FROM_TAGS_ALONE = {("triton", "3.9.0"): {"wheel_python_max"}}


class Index(BaseHTTPRequestHandler):
    """The Simple API with the recorded releases; some names answer with a fault."""

    def do_GET(self) -> None:
        name = self.path.strip("/").split("/")[1] if self.path.startswith("/simple/") else ""
        self.server.told.append(self.headers.get("Authorization"))  # type: ignore[attr-defined]
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
    found.fault, found.told = b"", []  # type: ignore[attr-defined]
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
    skipped = EVERYWHERE | BY_HAND.get(table, set()) | FROM_TAGS_ALONE.get((name, version), set())
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


def test_what_a_person_filled_in_stays_when_rows_are_read_again(
    server: ThreadingHTTPServer, older: Path
) -> None:
    columns, rows = refresh.read_table(older / "torch.csv")
    spoiled = [{**row, "nccl_pin": "0.0.1"} if row["version"] == "2.13.0" else row for row in rows]
    (older / "torch.csv").write_text(refresh.table_text(columns, spoiled))
    report = refresh.refresh(older, ["torch"], "2026-12-01", base=base(server), rereads=True)
    (again,) = [row for row in refresh.read_table(older / "torch.csv")[1] if row["version"] == "2.13.0"]
    (before,) = [row for row in rows if row["version"] == "2.13.0"]
    assert "2.13.0" in report.changed["torch"]
    assert again == {**before, "as_of": "2026-12-01"}


def file(name: str, day: str, is_yanked: bool = False) -> dict[str, Any]:
    return {"filename": name, "upload-time": f"{day}T10:00:00Z", "yanked": is_yanked}


def test_a_repair_of_an_older_line_is_new() -> None:
    rows = [
        {"version": "1.0.0", "release_date": "2025-01-01"},
        {"version": "2.0.0", "release_date": "2026-01-01"},
    ]
    listed = {
        Version("0.9.0"): [file("a-0.9.0.tar.gz", "2024-01-01")],
        Version("1.0.1"): [file("a-1.0.1.tar.gz", "2026-03-01")],
        Version("2.0.0"): [file("a-2.0.0.tar.gz", "2026-01-01")],
        Version("2.1.0"): [file("a-2.1.0.tar.gz", "2026-02-01", True)],
        Version("2.2.0rc1"): [file("a-2.2.0rc1.tar.gz", "2026-02-01")],
    }
    assert refresh.new_versions(rows, listed) == [Version("1.0.1")]


def test_a_table_without_rows_begins_with_2021() -> None:
    listed = {
        Version("1.0"): [file("a-1.0.tar.gz", "2020-12-31")],
        Version("1.1"): [file("a-1.1.tar.gz", "2021-01-02")],
    }
    assert refresh.new_versions([], listed) == [Version("1.1")]


@pytest.mark.parametrize(
    ("lines", "python", "bound"),
    [
        (['numpy<2.0; python_version < "3.9"', 'numpy>=2; python_version >= "3.9"'], ">=3.6", ""),
        (['numpy>=1.26; python_version < "3.14"', 'numpy>=2.3; python_version >= "3.14"'], ">=3.11", ">=1.26"),
        (['numpy<3,>=1.2; python_version < "3.12"', 'numpy<3,>=2; python_version > "3.11"'], ">=3.11", "<3,>=1.2"),
        (['numpy>=1.2; python_version < "3.12"'], ">=3.11", ">=1.2"),
        (['a!=6.*,>=5; platform_machine != "s390x"', 'a==7; platform_machine == "s390x"'], ">=3.11", "!=6.*,>=5"),
        (['numpy>=1.2; python_version < "3.9"', 'numpy>=1.3; python_version < "3.8"'], ">=3.6", ""),
    ],
)  # fmt: skip
def test_a_bound_under_markers_is_what_holds_with_every_python(
    lines: list[str], python: str, bound: str
) -> None:
    assert refresh.common_bound([Requirement(line) for line in lines], python) == bound


def test_a_wheel_for_the_stable_abi_has_no_last_python() -> None:
    listed = [file("triton-9.0-cp311-cp311-win_amd64.whl", "2026-01-01"),
              file("triton-9.0-cp312-abi3-manylinux_2_28_x86_64.whl", "2026-01-01")]  # fmt: skip
    columns = ["version", "requires_python", "wheel_python_min", "wheel_python_max", "glibc_min_x86_64"]
    row = refresh.row_of("triton", Version("9.0"), listed, (">=3.11", []), columns, "2026-12-01")
    assert (row["wheel_python_min"], row["wheel_python_max"], row["glibc_min_x86_64"]) == (
        "3.11",
        "3.11",
        "2.28",
    )
    assert limits.python_fits(Environment(python="3.14"), row) is True


def test_packages_that_share_a_table_keep_to_their_own_rows(tmp_path: Path) -> None:
    place = refresh.PLACES["nvidia-cudnn-cu13"]
    columns, rows = refresh.read_table(DATA / "cudnn.csv")
    own = [row for row in rows if place.holds(row)]
    assert {row["cuda_package"] for row in own} == {"13"}
    listed = {Version("99.1"): [file("nvidia_cudnn_cu13-99.1-py3-none-win_amd64.whl", "2027-01-02")]}
    assert refresh.new_versions(own, listed, place.column) == [Version("99.1")]
    row = refresh.made_row(
        "nvidia-cudnn-cu13", Version("99.1"), listed[Version("99.1")], columns, "2027-01-03"
    )
    assert (row["cudnn"], row["cuda_package"], row["kind"], row["release_date"]) == (
        "99.1",
        "13",
        "pypi",
        "2027-01-02",
    )


def test_every_package_table_is_one_that_can_be_refreshed() -> None:
    places = {place.table for place in refresh.PLACES.values()}
    assert set(facts.PACKAGE_TABLES.values()) - {"flash_attn"} <= places
    assert places <= set(facts.TABLES)


def test_a_name_and_password_in_the_address_reach_the_index(server: ThreadingHTTPServer) -> None:
    pypi.files("torch", base(server).replace("127.0.0.1", "me:se%40cret@127.0.0.1"))
    assert server.told == [f"Basic {base64.b64encode(b'me:se@cret').decode()}"]  # type: ignore[attr-defined]


def test_an_answer_that_comes_too_slowly_is_given_up(
    server: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pypi, "LONGEST_ANSWER_S", -1.0)
    with pytest.raises(InputError, match="index_unreadable"):
        pypi.files("torch", base(server))
