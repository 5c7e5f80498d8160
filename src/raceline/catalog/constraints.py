"""What can't work, whatever the estimate says: each refusal is a fact of the catalogue with its source.

`check` refuses; `cautions` tells what works and costs. Both are pure: the rows come in as values, the
catalogue's own by default.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raceline.catalog import load
from raceline.catalog.nodes import has_peer_access
from raceline.catalog.types import Accelerator, Link, NodeFact, PrecisionRule, Runtime
from raceline.present.errors import Message, message

P2P_SOURCE = "https://allanchan339.github.io/bug-fixes/2025/05/21/4090-P2P.html"
MIG_SOURCE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"

# Links that only one vendor's devices have, by kind.
_LINK_VENDORS: dict[str, tuple[str, ...]] = {
    "nvlink": ("NVIDIA",),
    "infinity-fabric": ("AMD",),
    "ici": ("Google",),
    "neuronlink": ("AWS",),
}
_PROCESSOR_MAKERS = {"Apple", "Intel", "Qualcomm"}


def check(
    accelerator: Accelerator,
    runtime: Runtime | None = None,
    precision: str | None = None,
    interconnect: str | None = None,
    count: int = 1,
    *,
    task: str | None = None,
    mig_profile: str | None = None,
    operating_system: str | None = None,
    links: Mapping[str, Link] | None = None,
    nodes: Mapping[str, NodeFact] | None = None,
    rules: Sequence[PrecisionRule] | None = None,
) -> list[Message]:
    """Why this combination can't work; empty where nothing is known against it.

    `interconnect` is a link id or a kind (``nvlink``). Each message's params hold the fact and its
    `source_url`.
    """
    found: list[Message] = []
    if runtime is not None:
        found += check_runtime(accelerator, runtime, precision, task, operating_system)
    if precision is not None:
        hardware = check_precision(accelerator, precision, load.precision_rules() if rules is None else rules)
        if hardware:
            # the device's own fact says more than the runtime's demand that follows from it
            found = [item for item in found if item.id != "catalog.runtime_precision_needs_capability"]
        found += hardware
    if interconnect is not None:
        found += check_link(
            accelerator,
            interconnect,
            count,
            load.links() if links is None else links,
            load.nodes() if nodes is None else nodes,
        )
    if mig_profile is not None:
        found += check_mig(accelerator, mig_profile, count)
    if task == "train" and accelerator.training_capable == "no":
        found.append(
            message("catalog.cannot_train", accelerator=accelerator.name, source_url=accelerator.source_url)
        )
    return found


def check_runtime(
    accelerator: Accelerator,
    runtime: Runtime,
    precision: str | None = None,
    task: str | None = None,
    operating_system: str | None = None,
) -> list[Message]:
    """Vendor, kind, architecture, compute capability, task and operating system of a runtime."""
    about = {"runtime": runtime.name, "accelerator": accelerator.name, "source_url": runtime.source_url}
    if not _has_backend(accelerator, runtime):
        return [
            message(
                "catalog.runtime_not_for_vendor",
                **about,
                vendor=accelerator.vendor,
                vendors=", ".join(runtime.vendors),
            )
        ]
    found = list(_capability(accelerator, runtime, precision))
    if precision is not None and runtime.precisions and precision not in runtime.precisions:
        given = ", ".join(runtime.precisions)
        found.append(
            message("catalog.precision_not_in_runtime", **about, precision=precision, precisions=given)
        )
    if task is not None and task not in runtime.tasks:
        found.append(message(f"catalog.runtime_cannot_{task}", **about))
    if operating_system is not None and operating_system not in runtime.operating_systems:
        systems = ", ".join(runtime.operating_systems)
        found.append(
            message("catalog.runtime_not_on_system", **about, system=operating_system, systems=systems)
        )
    return found


def check_precision(
    accelerator: Accelerator, precision: str, rules: Iterable[PrecisionRule]
) -> list[Message]:
    """Whether the device's matrix units have this precision; a processor computes 16 bits without any."""
    if accelerator.kind == "cpu" and precision in ("fp32", "fp16", "bf16"):
        return []
    for rule in rules:
        if rule.precision != precision or rule.vendor != accelerator.vendor:
            continue
        about = {
            "precision": precision,
            "accelerator": accelerator.name,
            "source_url": rule.source_url,
            "as_of": rule.as_of,
        }
        needed, has = rule.minimum_compute_capability, accelerator.compute_capability
        if needed is not None and has is not None and has < needed:
            return [message("catalog.precision_needs_capability", **about, needed=needed, has=has)]
        if (
            rule.architectures
            and accelerator.architecture
            and accelerator.architecture not in rule.architectures
        ):
            return [
                message("catalog.precision_not_on_device", **about, architecture=accelerator.architecture)
            ]
    return []


def check_link(
    accelerator: Accelerator,
    interconnect: str,
    count: int,
    links: Mapping[str, Link],
    nodes: Mapping[str, NodeFact],
) -> list[Message]:
    """Whether the device has such a link, and whether it joins that many of them."""
    link = links.get(interconnect)
    kind = link.kind if link is not None else interconnect
    if kind not in _LINK_VENDORS:
        return []
    about = {"accelerator": accelerator.name, "link": kind, "source_url": accelerator.source_url}
    if accelerator.vendor not in _LINK_VENDORS[kind] or accelerator.intra_link in (None, "none"):
        return [message("catalog.no_such_link", **about)]
    fact = nodes.get(accelerator.id)
    domain = (fact and fact.link_domain) or accelerator.max_per_node
    if fact is not None and fact.intra_is_optional and domain is not None and count > domain:
        source = {**about, "source_url": fact.source_url}
        return [message("catalog.link_joins_fewer", **source, domain=domain, count=count)]
    return []


def check_mig(accelerator: Accelerator, profile: str, count: int) -> list[Message]:
    """Whether the device can be split like this; slices don't talk to each other."""
    about = {"accelerator": accelerator.name, "profile": profile, "source_url": accelerator.source_url}
    if not accelerator.mig_max_instances:
        return [message("catalog.no_mig", **about)]
    if accelerator.mig_profiles and profile not in accelerator.mig_profiles:
        return [message("catalog.unknown_mig_profile", **about, profiles=", ".join(accelerator.mig_profiles))]
    if count > 1:
        return [message("catalog.mig_has_no_peers", **{**about, "source_url": MIG_SOURCE}, count=count)]
    return []


def cautions(accelerator: Accelerator, count: int = 1, precision: str | None = None) -> list[Message]:
    """Facts that cost speed without forbidding anything: no peer access, half-rate accumulation."""
    found = []
    if count > 1 and not has_peer_access(accelerator, load.nodes().get(accelerator.id)):
        found.append(message("catalog.no_peer_access", accelerator=accelerator.name, source_url=P2P_SOURCE))
    note = accelerator.fp16_accum_note or ""
    if precision in ("fp16", "bf16", "fp8") and "half rate" in note:
        found.append(
            message("catalog.half_rate", accelerator=accelerator.name, source_url=accelerator.source_url)
        )
    return found


def _has_backend(accelerator: Accelerator, runtime: Runtime) -> bool:
    if accelerator.id in runtime.excluded:
        return False
    if accelerator.kind == "cpu":
        # one maker's own runtime aside, a runtime for processors runs on every maker's
        is_own = set(runtime.vendors) <= _PROCESSOR_MAKERS and len(runtime.vendors) == 1
        return "cpu" in runtime.device_kinds and (not is_own or accelerator.vendor in runtime.vendors)
    if "any" not in runtime.vendors and accelerator.vendor not in runtime.vendors:
        return False
    architectures = runtime.architectures.get(accelerator.vendor)
    if architectures and accelerator.architecture and accelerator.architecture not in architectures:
        return False
    return accelerator.kind in runtime.device_kinds


def _capability(accelerator: Accelerator, runtime: Runtime, precision: str | None) -> Iterable[Message]:
    has = accelerator.compute_capability
    if has is None:
        return
    for key in ("*", precision):
        needed = runtime.minimum_compute_capability.get(key or "")
        if needed is not None and has < needed:
            yield message(
                "catalog.runtime_needs_capability"
                if key == "*"
                else "catalog.runtime_precision_needs_capability",
                runtime=runtime.name,
                accelerator=accelerator.name,
                precision=precision,
                needed=needed,
                has=has,
                source_url=runtime.sources.get(f"minimum_compute_capability.{key}", runtime.source_url),
            )
