"""What people write where a version belongs: ``2.8.0+cu128``, ``>=2.0,<=2.4``, ``built with 12.1``, ``unpinned``."""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from packaging.version import InvalidVersion, Version

from raceline.stack import facts
from raceline.stack.versions import label_of, specifier

_ANY = frozenset({"any", "unpinned", "latest", "newest", "*", "not pinned", "no version", "unspecified", ""})
_VERSION = re.compile(r"v?(\d+(?:\.\w+)*?(?:\.?(?:post|dev|rc|a|b)\d*)?)(?:\+([\w.]+))?(?=[\s,;:)\[\]]|$)")
_MONTH = re.compile(r"(20\d\d)-(0[1-9]|1[0-2])")
_SM_RANGE = re.compile(r"sm_?(\d{2,3})\b.{1,12}\bsm_?(\d{2,3})")
_FROM_CODE = re.compile(r"\b(cu\d{2,3}|rocm\d[\d.]*|cpu)\b", re.IGNORECASE)


class Wording(msgspec.Struct, frozen=True):
    """A value as understood. `is_wanted`: a bound or a pin, not what is installed."""

    version: str | None = None
    label: str | None = None
    bounds: str | None = None
    is_wanted: bool = False
    extras: tuple[str, ...] = ()
    installer: Literal["conda", "pip"] | None = None
    compiled: str | None = None  # capabilities of the build
    built_for: str | None = None  # the torch that it belongs to
    loaded: str | None = None  # the version that a message says was loaded
    is_gpu: bool = False


def understood(package: str, text: str) -> Wording:
    """What a value says of a package; words that say nothing give an empty Wording."""
    value = text.strip().strip("'\"`").strip()[:200]
    low = value.lower()
    if low in _ANY:
        return Wording(bounds="", is_wanted=True)
    if value[:1] in "<>=!~" and specifier(value.replace(" ", "")) is not None:
        return _bounded(value.replace(" ", ""))
    if month := _MONTH.fullmatch(low):
        return Wording(version=newest_before(package, f"{month[1]}-{month[2]}-01"))
    if sms := _SM_RANGE.search(low):
        return Wording(compiled=_capabilities(sms[1], sms[2]))
    if found := re.match(r"(?:built |made |compiled )?for (?:torch |pytorch )?(\d[\w.+]*)", low):
        return Wording(built_for=found[1])
    return _plain(value, low)


def _plain(value: str, low: str) -> Wording:
    extras = (
        tuple(re.findall(r"\w[\w-]*", extra[1]))
        if (extra := re.search(r"\[([\w, -]{1,60})\]", value))
        else ()
    )
    installer: Literal["conda", "pip"] | None = "conda" if re.search(r"\bconda\b", low) else None
    loaded = re.search(r"(\d[\d.]*) loaded", low)
    label = _label(low)
    found = _VERSION.match(value) or _VERSION.match(
        re.split(r"\s", value, maxsplit=1)[-1] if value[:1].isalpha() else ""
    )
    version = _checked(found[1]) if found and not re.match(r"\d+ ?(?:x\b|-)", low) else None
    if found and found[2]:
        label = found[2]
    if version and re.search(r"\bdev\b|\bnightly\b", low) and "dev" not in version:
        version = f"{version}.dev0"
    if re.fullmatch(r"cuda\d\d_\w+", low):
        return Wording(bounds="", is_wanted=True, extras=(low,))
    if re.match(r"(?:built|compiled) (?:with|against)|cuda \d|rocm \d", low):
        version = None
    if loaded and version == loaded[1]:
        version = None
    is_wanted = bool(version) and bool(
        re.search(r"\b(?:pinned|wanted|requested|required)\b|\bfrom cu\d", low)
    )
    bounds = f"=={version}" if is_wanted else None
    return Wording(
        version=version,
        label=label,
        bounds=bounds,
        is_wanted=is_wanted,
        extras=extras,
        installer=installer,
        loaded=loaded[1] if loaded else None,
        is_gpu=bool(re.search(r"\bgpu\b", low)),
    )


def _bounded(text: str) -> Wording:
    label = None
    if found := re.search(r"\+([\w.]+)", text):
        label, text = found[1], text.replace(found[0], "")
    return Wording(bounds=text, is_wanted=True, label=label)


def _label(low: str) -> str | None:
    if found := re.search(r"cxx11abi(true|false)", low):
        return f"cxx11abi{found[1].upper()}"
    if found := _FROM_CODE.search(low):
        return found[1]
    if found := re.search(r"rocm ?(\d[\d.]*)", low):
        return f"rocm{found[1].rstrip('.')}"
    if found := re.search(
        r"(?:built|compiled)(?: with| against)?(?: cuda)? ?(\d{1,2}\.\d)|cuda ?(\d{1,2}\.\d)", low
    ):
        return label_of(found[1] or found[2])
    if found := re.search(r"cuda ?(\d{2})\b", low):
        return f"cu{found[1]}"
    return None


def _checked(text: str) -> str | None:
    try:
        Version(text)
    except InvalidVersion:
        return None
    return text


def _capabilities(low: str, high: str) -> str:
    known = [row["compute_capability"] for row in facts.table("cuda_arch")]
    ends = [f"{item[:-1]}.{item[-1]}" for item in (low, high)]
    usual = ("5.0", "6.0", "7.0", "7.5", "8.0", "8.6", "9.0", "10.0", "12.0")
    found = [
        item for item in known if item in (*ends, *usual) and float(ends[0]) <= float(item) <= float(ends[1])
    ]
    return " ".join(found)


def newest_before(package: str, day: str) -> str | None:
    """The newest final release in the tables from before a day, None where the tables have none."""
    dated = [
        (version, row["release_date"]) for version, row in facts.releases(package).items()
        if row.get("release_date") and row["release_date"] < day and not version.is_prerelease
    ]  # fmt: skip
    return str(max(dated)[0]) if dated else None
