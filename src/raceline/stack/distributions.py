"""Linux distributions and the C library that each release came with."""

from __future__ import annotations

from raceline.stack import facts


def glibc_of(name: str, version: str) -> str | None:
    """glibc of a distribution's release, by the longest part of the version that is known."""
    known = {row["version"]: row["glibc"] for row in facts.table("distributions") if row["name"] == name}
    return known.get(version) or known.get(version.split(".")[0])
