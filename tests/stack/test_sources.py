"""Source archives are read without running what is in them."""

from __future__ import annotations

import io
import tarfile

from raceline.stack import sources


def archive(**files: str) -> bytes:
    """A source archive with these files (`__` in a name stands for `/`)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as packed:
        for name, text in files.items():
            item = tarfile.TarInfo("a-1.0/" + name.replace("__", "/").replace("PKG_INFO", "PKG-INFO") + "")
            item.size = len(text.encode())
            packed.addfile(item, io.BytesIO(text.encode()))
    return out.getvalue()


def test_requirements_are_taken_from_the_metadata() -> None:
    told = archive(PKG_INFO="Requires-Python: >=3.9\nRequires-Dist: torch>=2\nRequires-Dist: numpy\n\n")
    assert sources.metadata(told) == (">=3.9", ["torch>=2", "numpy"])


def test_older_archives_say_them_in_a_file_of_their_own() -> None:
    told = archive(
        PKG_INFO="Requires-Python: >=3.6\n\n", **{"a.egg-info__requires.txt": "torch>=1.2\n\n[dev]\npytest\n"}
    )
    assert sources.metadata(told) == (">=3.6", ["torch>=1.2"])


def test_the_outermost_file_counts() -> None:
    told = archive(third__party__PKG_INFO="Requires-Dist: other\n\n", PKG_INFO="Requires-Dist: torch\n\n")
    assert sources.metadata(told) == ("", ["torch"])


def test_what_is_no_archive_says_nothing() -> None:
    assert sources.metadata(b"\x1f\x8b not an archive") == ("", [])
    assert sources.metadata(b"") == ("", [])
    assert sources.metadata(archive(PKG_INFO="Requires-Dist: torch\n\n")[:40]) == ("", [])


def test_an_archive_is_unpacked_to_a_limit_only(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(sources, "LARGEST_UNPACKED", 2048)
    told = archive(big="0" * 100_000, PKG_INFO="Requires-Dist: torch\n\n")
    assert sources.metadata(told) == ("", [])
