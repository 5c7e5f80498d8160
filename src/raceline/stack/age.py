"""What the tables can't tell: how old they are, and releases that they do not know."""

from __future__ import annotations

import datetime

from raceline.present.errors import Message, message
from raceline.stack import facts
from raceline.stack.standing import torch_of
from raceline.stack.told import Told
from raceline.stack.versions import parse

OLD_DAYS = 120
# tables of things that no longer change, or that change with hardware alone
_SETTLED = frozenset(
    {"gpus", "distributions", "numpy2_builds", "onnxruntime_tensorrt", "driver_branch", "flash_attn"}
)


def old_tables(today: datetime.date, limit_days: int = OLD_DAYS) -> tuple[Message, ...]:
    """One message on the tables whose newest statement is older than a limit, none where all are younger."""
    ages = {
        name: days
        for name, days in facts.ages_days(today).items()
        if name not in _SETTLED and days > limit_days
    }
    if not ages:
        return ()
    return (message("stack.tables_old", tables=", ".join(sorted(ages)), days=max(ages.values())),)


def unknown_versions(told: Told) -> tuple[Message, ...]:
    """Packages of the tables that stand in a release which they do not know: no verdict rests on such a release."""
    found = []
    for package in facts.PACKAGE_TABLES:
        item = told.installed(package)
        if item is None or item.version is None or facts.is_known(package, item.version):
            continue
        version = parse(item.version)
        if version is None or _is_partial(item.version, package):
            continue
        newest = next(iter(facts.releases(package)), None)
        found.append(
            message("stack.version_unknown", package=package, version=item.version, newest=str(newest))
        )
    return tuple(found)


def assumed_builds(told: Told) -> tuple[Message, ...]:
    """A torch whose build nobody named: it is judged as the default of the package index."""
    torch = torch_of(told)
    if torch is None or torch.build is None or not torch.is_assumed or torch.is_sure or torch.version is None:
        return ()
    return (message("stack.build_assumed", version=torch.version, label=torch.label or ""),)


def _is_partial(version: str, package: str) -> bool:
    """Whether a version was told by its first parts (``2.16``) and the tables know releases of it."""
    return any(str(known).startswith(f"{version}.") for known in facts.releases(package))
