"""``hf:ORG/NAME`` against a server on this machine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("huggingface_hub")
pytestmark = pytest.mark.filterwarnings("ignore")

from raceline.models import count  # noqa: E402
from raceline.models.readers.hf import read_hub  # noqa: E402
from raceline.present.errors import InputError  # noqa: E402

LLAMA = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 160, "vocab_size": 100}  # fmt: skip
FILES = {
    "/org/tiny/resolve/main/config.json": json.dumps(LLAMA).encode(),
    "/org/big/resolve/main/config.json": b" ",
}


class Hub(BaseHTTPRequestHandler):
    """Answers as the hub does for a file, with its size and its hash."""

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.wfile.write(self.answer())

    def answer(self) -> bytes:
        data = FILES.get(self.path.partition("?")[0])
        self.send_response(404 if data is None else 200)
        if data is None:
            self.send_header("X-Error-Code", "EntryNotFound")
        size = 10**10 if "big" in self.path else len(data or b"")
        headers = {"ETag": '"abc"', "X-Repo-Commit": "0" * 40, "Content-Length": str(size)}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        return data or b""

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


@pytest.fixture
def endpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_config_alone_gives_the_model(endpoint: str) -> None:
    model = read_hub("org/tiny", endpoint=endpoint)
    assert (model.name, model.layers) == ("org/tiny", 2)
    assert count.parameters(model) > 100_000


@pytest.mark.parametrize(("name", "reason"), [("org/none", "hub_without_config"), ("org/big", "too_large")])
def test_what_cannot_be_taken_is_refused(endpoint: str, name: str, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        read_hub(name, endpoint=endpoint)
    assert caught.value.message.id.endswith(reason)


def test_a_senseless_name_is_refused(endpoint: str) -> None:
    with pytest.raises(InputError):
        read_hub("../../etc/passwd", endpoint=endpoint)


def test_a_hub_that_is_away_is_said(endpoint: str) -> None:
    with pytest.raises(InputError) as caught:
        read_hub("org/tiny", endpoint="http://127.0.0.1:9")
    assert caught.value.message.id == "models.hub_unreachable"
