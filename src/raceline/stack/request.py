"""What is asked of the solver, and what it answers: values that writers turn into files."""

from __future__ import annotations

from typing import Literal

import msgspec

from raceline.measure.environment import Distribution, Environment
from raceline.present.errors import Message
from raceline.stack.result import Action, Fact
from raceline.stack.told import Requirement

Preference = Literal["newest", "stable", "least-change"]


class StackRequest(msgspec.Struct, frozen=True):
    """Packages that are wanted together, and the machine they must run on.

    `machine` holds what is known or asked of the machine (os, arch, glibc, driver, gpus, python; what is None is
    free); `pythons` are in order of preference, and with `is_python_free` others may be taken where none of them
    works. `keep` are packages that stay as they are where possible. `has_gpu` False wants CPU builds. `cuda_major`
    holds the set to one CUDA major.
    """

    want: tuple[Requirement, ...]
    machine: Environment = Environment()
    pythons: tuple[str, ...] = ()  # empty: machine.python, else all that are not at their end
    is_python_free: bool = False
    keep: tuple[Distribution, ...] = ()
    prefer: Preference = "stable"
    has_gpu: bool | None = None
    cuda_major: int | None = None


class Pick(msgspec.Struct, frozen=True):
    """One package of a solution, with why it is this version and this build.

    `index_url` is the index that has the build where the default one does not. `bounds` are what the others need of a
    package that nobody asked for: within them the installer may choose; `asked` what was asked of one whose releases
    no table has.
    """

    package: str
    version: str
    label: str | None = None
    extras: tuple[str, ...] = ()
    index_url: str | None = None
    reasons: tuple[Message, ...] = ()
    facts: tuple[Fact, ...] = ()
    bounds: str = ""
    asked: str = ""


class Alternative(msgspec.Struct, frozen=True):
    """A set that works once something is changed (the driver, the Python, one wish less)."""

    changes: tuple[Action, ...]
    picks: tuple[Pick, ...]
    python: str


class Solution(msgspec.Struct, frozen=True):
    """A set that works, or why there is none and what is nearest.

    `picks` are the framework packages, `rest` what uv filled in around them (empty when it was not asked);
    `conflict` None: solved. `cuda`, `driver_floor` and `glibc_floor` say what the set needs of the machine. `because`
    says of a conflict what each side needs, and `conflict_facts` where that stands.
    """

    request: StackRequest
    python: str | None = None
    picks: tuple[Pick, ...] = ()
    rest: tuple[Pick, ...] = ()
    is_complete: bool = False
    cuda: str | None = None
    driver_floor: str | None = None
    glibc_floor: str | None = None
    notes: tuple[Message, ...] = ()
    conflict: Message | None = None
    because: tuple[Message, ...] = ()
    conflict_facts: tuple[Fact, ...] = ()
    nearest: tuple[Alternative, ...] = ()
