"""What a check answers: findings with causes, facts and fixes, as values."""

from __future__ import annotations

from typing import Literal

import msgspec

from raceline.present.errors import Message

Verdict = Literal["will_fail", "may_fail", "fine"]
# whether the facts confirm a cause, an error message alone says so, or nothing that is known speaks against it
Basis = Literal["facts", "message", "both"]
ActionKind = Literal[
    "install_build", "upgrade", "downgrade", "pin", "remove", "driver", "toolkit", "python", "os_or_glibc",
    "compiler", "env_var", "hardware", "other",
]  # fmt: skip


class Fact(msgspec.Struct, frozen=True):
    """The row that a verdict stands on: `table` (``torch_arch``, ``rules``), `row` (its key), its source."""

    table: str
    row: str
    source_url: str
    as_of: str
    confidence: str | None = None


class Action(msgspec.Struct, frozen=True, omit_defaults=True, rename={"from_": "from"}):
    """One step of a fix. `to` is a PEP 440 specifier, or for a driver, toolkit, … a comparison (``>=580``).

    `build` is the variant of an `install_build` (``cu126``, ``source``, ``cxx11abiTRUE``); `name` names what has
    no package (an environment variable, another way); `command` does it, where one line can.
    """

    action: ActionKind
    package: str | None = None
    from_: str | None = None
    to: str | None = None
    build: str | None = None
    name: str | None = None
    command: str | None = None


Fix = tuple[Action, ...]  # steps that go together


class Finding(msgspec.Struct, frozen=True):
    """One judged cause. `cause` is a kind of `causes.KINDS`; `blocks` orders findings: what stops first is first.

    `fixes` are alternatives, the nearest first; each is a list of steps that go together.
    """

    cause: str
    verdict: Verdict
    text: Message
    rule: str
    basis: Basis = "facts"
    blocks: int = 50
    packages: tuple[str, ...] = ()
    fixes: tuple[Fix, ...] = ()
    facts: tuple[Fact, ...] = ()
