"""How people write device names, taken apart: ``RTX3090-24GB (23.58 GiB)`` is a core, a form, sizes."""

from __future__ import annotations

import re

import msgspec

# Words that tell the vendor, the brand or the obvious; dropping them never merges two devices.
_NOISE = frozenset(
    """nvidia amd intel google aws apple huawei graphcore qualcomm amazon habana geforce tesla radeon
    instinct gpu gpus card cards edition generation blackwell accelerator unified memory cloud per chip
    integrated graphics desktop or larger rev tensor superchip""".split()  # noqa: SIM905
)
# Brands as Chinese texts write them; those that a name doesn't need are dropped.
_CHINESE = {
    "昇腾": "ascend ", "寒武纪": "", "摩尔线程": "mtt ", "英伟达": "", "华为": "", "海光": "", "沐曦": "",
    "天数智芯": "", "壁仞": "", "燧原": "", "苹果": "", "高通": "", "英特尔": "", "显卡": "", "加速卡": "", "芯片": "",
}  # fmt: skip
_FORMS = re.compile(r"sxm\d?|pcie|nvl|oam")
_MEMORY_TYPES = re.compile(r"hbm\d?e?|gddr\d[x]?|lpddr\d[x]?")
_SIZE = re.compile(r"(?<![a-z0-9.])(\d+(?:\.\d+)?)\s*(gib|gb|mib|mb|g)(?![a-z0-9])", re.IGNORECASE)
_MIG = re.compile(r"(?:mig[-\s]*)?(\dg\.\d+gb)", re.IGNORECASE)
_CORES = re.compile(r"\b\d+[-\s]?cores?\b", re.IGNORECASE)
_TIED_FORM = re.compile(r"(?<=\d)(sxm\d?|pcie|nvl)$")


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """`core` is what tells the model (``rtx3090``, ``a100``); `memory_gib` the size on the label,
    `usable_gib` an exact size that stands in parentheses; None or empty where not written."""

    core: str
    form: str = ""
    memory_type: str = ""
    memory_gib: float | None = None
    usable_gib: float | None = None
    mig_profile: str | None = None


def hyphened(text: str) -> str:
    """Lower case, words joined by hyphens: how aliases and ids are written."""
    return re.sub(r"[^a-z0-9.+]+", "-", _latin(text).lower()).strip("-")


def take_apart(text: str) -> Name:
    """Parse a name as people write it. Never fails: what is not understood stays in the core."""
    text = _latin(text)
    mig = _MIG.search(text)
    rest = _MIG.sub(" ", text)
    outside, inside = _split_parentheses(rest)
    memory_gib, outside = _take_size(outside)
    usable_gib, _ = _take_size(inside)
    if memory_gib is None:
        memory_gib, usable_gib = usable_gib, None
    words = _words(_CORES.sub(" ", outside))
    form = next((word for word in words if _FORMS.fullmatch(word)), "")
    memory_type = next((word for word in words if _MEMORY_TYPES.fullmatch(word)), "")
    core = "".join(word for word in words if word not in _NOISE and word not in (form, memory_type))
    tied = _TIED_FORM.search(core)
    if tied and not form:
        core, form = core[: tied.start()], tied[1]
    return Name(
        core=core,
        form=form,
        memory_type=memory_type,
        memory_gib=memory_gib,
        usable_gib=usable_gib,
        mig_profile=mig[1].lower() if mig else None,
    )


def _latin(text: str) -> str:
    if text.isascii():
        return text
    for brand, latin in _CHINESE.items():
        text = text.replace(brand, latin)
    return text


def _split_parentheses(text: str) -> tuple[str, str]:
    outside = re.sub(r"\([^)]*\)?", " ", text)
    return outside, " ".join(re.findall(r"\(([^)]*)\)?", text))


def _take_size(text: str) -> tuple[float | None, str]:
    found = _SIZE.search(text)
    if found is None:
        return None, text
    size = float(found[1])
    size_gib = size / 1024 if found[2].lower().startswith("m") else size
    return size_gib, text[: found.start()] + " " + text[found.end() :]


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[^a-z0-9.]+", text.lower()) if word]
