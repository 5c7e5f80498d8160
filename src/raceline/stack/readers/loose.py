"""Free words: ``RTX 5090, CUDA 11.8, torch 2.0.1, Windows 10, driver 470.141.03``."""

from __future__ import annotations

import re

from raceline.measure.environment import Distribution
from raceline.stack.gpus import look_up
from raceline.stack.readers import system
from raceline.stack.readers.collected import Collected
from raceline.stack.readers.names import KNOWN, normalised
from raceline.stack.readers.requirements import indexes_in, read_install_command, read_wheel
from raceline.stack.readers.wording import understood

LONGEST = 1000
# a line that reports an error speaks of versions that are not installed
_ERROR = re.compile(
    r"(?i)[\\/]site-packages[\\/]|no matching|satisfies the requirement|built for|does not match|incompatible|not compatible|compiled"
    r"|cannot be run in|requires?\b|error:|needs?\b|unsupported"
)
_NOT_LOOSE = frozenset(
    {"cuda-version", "cuda-toolkit", "cuda-compat", "nccl", "keras", "apex", "optimum", "pillow", "triton"}
)
_NAMES = "|".join(
    sorted(
        (
            re.escape(name).replace(r"\-", "[-_ ]?")
            for name in KNOWN - _NOT_LOOSE | {"pytorch"}
            if len(name) > 2
        ),
        key=len,
        reverse=True,
    )
)
_PACKAGE = re.compile(
    rf"(?<![\w./-])({_NAMES})(?:\[[\w,-]{{1,40}}\])?[ =v@:]{{1,3}}(\d[\w.]{{0,20}}(?:\+[\w.]{{1,30}})?)(?![\w/])",
    re.IGNORECASE,
)
_GPU = re.compile(
    r"\b((?:(?:NVIDIA|GeForce|Tesla|Quadro|AMD|Radeon|Instinct) ){0,2}(?:RTX|GTX|RX|TITAN|Jetson|Vega) ?(?:PRO |A)?[A-Z0-9]{0,6}(?: (?:Ti|SUPER|XT|XTX|Ada|Xavier|Nano|Orin|Thor))?"
    r"|(?:Tesla |NVIDIA )?(?:V100|P100|P40|P4|K80|K40m?|M40|M60|T4|A100|A10G?|A30|A40|A800|H100|H200|H800|H20|B200|B300|GB200|GB10|L40S?|L4|MI\d{2,3}X?)"
    r"|gfx[0-9a-f]{3,4}|DGX Spark|Strix Halo)\b(?:[ -](?:\d{1,3} ?GB|SXM\d?|PCIe))?( ?[x×] ?\d{1,2}\b)?"
)
_DRIVER = re.compile(r"(?i)\bdrivers?(?: version)?[ :=v]{1,3}(\d{3}(?:\.\d{1,3}){0,2})\b")
_CUDA = re.compile(r"(?i)\bcuda(?: toolkit| version)?[ :=v-]{0,3}(\d{1,2}\.\d)\b")
_SHOWS = re.compile(
    r"(?i)(?:nvidia-smi|driver)[^.\n]{0,40}(?:shows?|reports?|says|supports)[^.\n]{0,20}cuda[^\d\n]{0,12}(\d{1,2}\.\d)"
)
_PYTHON = re.compile(r"(?i)\bpython ?[v=:]?\s?(3\.\d{1,2}(?:\.\d{1,2})?)\b")
_SYSTEM = re.compile(
    r"(?i)\b(?:ubuntu|debian|centos|rhel|rocky|fedora|amazon linux|windows|mac ?os|alpine)(?: linux)?[ -]?(?:server )?\d{1,4}(?:\.\d{1,2}){0,2}\b|\bWSL2?\b|\bwindows\b"
)
_GLIBC = re.compile(r"(?i)\bglibc[ :=-]{0,2}(\d\.\d{1,2})\b(?!' not)")


def read_loose(line: str, found: Collected) -> bool:
    """Keep what a line in free words says; False where it says nothing."""
    text = line[:LONGEST]
    if not any(char.isdigit() for char in text) and not re.search(r"(?i)\bwsl|windows|gfx", text):
        return False
    said = read_install_command(text, found, "requirements") or indexes_in(text, found)
    if ".whl" in text:
        said = read_wheel(text, found) or said
    if not said and not _ERROR.search(text):
        said = _packages(text, found)
    said = _machine(text, found) or said
    if said:
        found.note("facts")
    return said


def _packages(text: str, found: Collected) -> bool:
    said = False
    for name, value in _PACKAGE.findall(text):
        public, _, label = value.partition("+")
        wording = understood("", public)
        if wording.version is not None and "." in public:
            found.add_installed(
                Distribution(normalised(name.replace(" ", "-")), wording.version, label or None)
            )
            said = True
    return said


def _machine(text: str, found: Collected) -> bool:
    said = False
    if shows := _SHOWS.search(text):
        found.set(driver_cuda=shows[1])
        said = True
    elif (cuda := _CUDA.search(text)) and not re.search(r"(?i)install|version 1\d\.\d does not match", text):
        found.set(toolkit=cuda[1])
        said = True
    for match in (_DRIVER.search(text),):
        if match:
            found.set(driver=match[1])
            said = True
    if match := _PYTHON.search(text):
        found.set(python=match[1])
        said = True
    if match := _GLIBC.search(text):
        found.set(glibc=match[1])
        said = True
    if match := _SYSTEM.search(text):
        found.set(**system.system(match[0]))
        said = True
    if not re.search(r"(?i)requires|supports|only|built for|sm_\d", text):
        for gpu, count in _GPU.findall(text)[:4]:
            found.add_gpu(look_up(gpu + count))
            said = True
    return said
