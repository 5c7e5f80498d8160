"""What was told of a stack: a machine, wanted packages, and what went wrong."""

from __future__ import annotations

from typing import Literal

import msgspec

from raceline.measure.environment import Distribution, Environment

SourceKind = Literal[
    "machine", "collect_env", "nvidia_smi", "pip_list", "uv_pip_list", "pip_freeze", "conda_list", "requirements",
    "environment_yml", "pyproject", "dockerfile", "error_log", "facts",
]  # fmt: skip


class Requirement(msgspec.Struct, frozen=True):
    """A wanted package. `specifier` is PEP 440 (``==2.1.0``, ``>=2.0,<=2.4``, empty: any version).

    `label` is the build that was asked for (``cu121``, ``cpu``, ``rocm6.2``), by a local label or an index.
    """

    name: str
    specifier: str = ""
    label: str | None = None
    extras: tuple[str, ...] = ()
    source: SourceKind | None = None


class Symptom(msgspec.Struct, frozen=True):
    """A known error in a log: `id` names the pattern (a row of ``data/symptoms.json``).

    `params` are what the message itself says (``{"found": "12080"}``); `line` is the message, private values
    taken out.
    """

    id: str
    params: dict[str, str] = {}
    line: str = ""


class Source(msgspec.Struct, frozen=True):
    """One part of what was read: what it was taken for, and how many of its lines said something."""

    kind: SourceKind
    lines: int = 0


class Told(msgspec.Struct, frozen=True):
    """All that is known: the environment, what is to be installed, errors, and how it was read.

    `index_labels` are builds named by index addresses or options (``cu126`` of ``…/whl/cu126``,
    ``--torch-backend=cu128``), `installers` maps an installer to its version or option (``uv``: ``0.6.9``).
    """

    environment: Environment = Environment()
    requirements: tuple[Requirement, ...] = ()
    symptoms: tuple[Symptom, ...] = ()
    sources: tuple[Source, ...] = ()
    index_labels: tuple[str, ...] = ()
    installers: dict[str, str] = {}
    base_image: str | None = None
    unread_lines: int = 0

    def installed(self, name: str) -> Distribution | None:
        """The package as it is installed, or as an exact requirement will install it."""
        found = self.environment.distribution(name)
        if found is not None:
            return found
        for item in self.requirements:
            if item.name == name and item.specifier.startswith("==") and "," not in item.specifier:
                version = item.specifier.removeprefix("==")
                return Distribution(name, None if "*" in version else version, item.label)
        return None

    def requirement(self, name: str) -> Requirement | None:
        """What is asked of the package, if it is named in a requirement."""
        return next((item for item in self.requirements if item.name == name), None)

    def symptom(self, *ids: str) -> Symptom | None:
        """The first known error with one of these ids."""
        return next((item for item in self.symptoms if item.id in ids), None)

    def mentions(self, name: str) -> bool:
        """Whether the package is installed or wanted."""
        return self.environment.distribution(name) is not None or self.requirement(name) is not None


def joined(told: Told, machine: Environment) -> Told:
    """What was told, and of a machine what the text leaves open; its packages come after those of the text."""
    given = told.environment
    names = {item.name for item in given.distributions}
    rest = tuple(item for item in machine.distributions if item.name not in names)
    known = {
        name: getattr(given, name) if getattr(given, name) not in (None, ()) else getattr(machine, name)
        for name in Environment.__struct_fields__
    }
    environment = Environment(**{**known, "distributions": (*given.distributions, *rest)})
    sources = (*told.sources, Source("machine"))
    return msgspec.structs.replace(told, environment=environment, sources=sources)
