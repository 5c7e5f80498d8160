"""Parts that go in one version: JAX and its plugins, torch_xla, the Neuron SDK; coremltools and Python."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from raceline.measure.environment import Distribution
from raceline.present.errors import message
from raceline.stack import facts, limits
from raceline.stack.fixes import install_command, moved
from raceline.stack.result import Action, Finding, Fix
from raceline.stack.rules import Rule
from raceline.stack.told import Symptom, Told
from raceline.stack.versions import admits, at_least, minor, parse


def torch_xla(told: Told) -> Iterator[Finding]:
    """torch_xla x.y needs torch x.y; its metadata does not say so."""
    xla, torch = told.installed("torch-xla"), told.installed("torch")
    said = next((item for item in told.symptoms if "xlac" in item.params.get("library", "").lower()), None)
    if xla is None and said is None:
        return
    x, t = xla.version if xla else None, torch.version if torch else None
    if x is not None and t is not None and minor(x) == minor(t):
        text = message("stack.pin_holds", package="torch-xla", version=x, torch=t)
        yield Finding(
            "torch_xla_lockstep",
            "fine",
            text,
            "torch-xla-lockstep",
            facts=(facts.rule_fact("torch-xla-lockstep"),),
        )
        return
    if said is None and (x is None or t is None):
        return
    fixes: list[Fix] = []
    if t is not None:
        fixes.append(
            (
                Action(
                    "upgrade" if x is None or at_least(t, x) else "downgrade",
                    package="torch-xla",
                    from_=x,
                    to=f"=={minor(t)}.*",
                    command=f'pip install "torch-xla=={minor(t)}.*"',
                ),
            )
        )
    if x is not None:
        fixes.append(
            (
                Action(
                    "downgrade" if t is None or at_least(t, x) else "upgrade",
                    package="torch",
                    from_=t,
                    to=f"=={minor(x)}.*",
                    command=f'pip install "torch=={minor(x)}.*"',
                ),
            )
        )
    yield Finding(
        "torch_xla_lockstep",
        "will_fail",
        message("stack.xla_differs", xla=x or "?", torch=t or "?"),
        "torch-xla-lockstep",
        "both" if said and x and t else "message" if said else "facts",
        27,
        ("torch-xla", "torch"),
        tuple(fixes),
        (facts.rule_fact("torch-xla-lockstep"),),
    )


_JAX_PARTS = (
    "jax-cuda12-plugin",
    "jax-cuda12-pjrt",
    "jax-cuda13-plugin",
    "jax-cuda13-pjrt",
    "jax-rocm7-plugin",
    "jax-rocm7-pjrt",
)


def jax_lockstep(told: Told) -> Iterator[Finding]:
    """jax, jaxlib, plugin and pjrt go in one version."""
    said = told.symptom("jax_versions", "jax_pjrt_mismatch", "jax_no_ffi")
    crash = told.symptom("segmentation_fault")
    parts = {name: found for name in _JAX_PARTS if (found := told.installed(name)) is not None}
    jax, jaxlib = told.installed("jax"), told.installed("jaxlib")
    if said is None and not (crash is not None and parts) and not parts and (jax is None or jaxlib is None):
        return
    base = (jax.version if jax else None) or (said.params.get("jax") if said else None)
    lib = (jaxlib.version if jaxlib else None) or (said.params.get("jaxlib") if said else None)
    off = [
        name
        for name, found in parts.items()
        if found.version and (lib or base) and parse(found.version) != parse(lib or base)
    ]
    needed = said.params.get("needed") if said is not None else None
    lib_off = base is not None and lib is not None and _jaxlib_is_off(base, lib, needed)
    if not off and not lib_off and said is None and crash is None:
        if base is not None:
            text = message("stack.jax_in_step", version=base)
            yield Finding(
                "jax_lockstep", "fine", text, "jax-plugin-lockstep", facts=facts.package_fact("jax", base)
            )
        return
    text = message(
        "stack.jax_out_of_step",
        jax=base or "?",
        jaxlib=lib or "?",
        parts=", ".join(f"{n} {f.version or '?'}" for n, f in parts.items()) or "-",
    )
    yield Finding(
        "jax_lockstep",
        "will_fail" if off or lib_off or said else "may_fail" if not parts else "will_fail",
        text,
        "jax-plugin-lockstep",
        "both" if (said or crash) and (off or lib_off) else "message" if said or crash else "facts",
        28,
        ("jax", "jaxlib", *parts),
        _jax_fixes(base, lib, parts, lib_off, needed),
        (facts.rule_fact("jax-plugin-lockstep"), *facts.package_fact("jax", base)),
    )


def _jaxlib_is_off(jax: str, jaxlib: str, needed: str | None) -> bool:
    """By the range that jax declares, by the floor that a message names, else where it is newer than jax."""
    row = facts.release("jax", jax)
    if needed is not None and at_least(jaxlib, needed) is False:
        return True
    if row is not None and row["jaxlib_range"]:
        return admits(row["jaxlib_range"], jaxlib) is False
    return at_least(jax, jaxlib) is False


def _jaxlib_for(jax: str, present: str | None, needed: str | None) -> Action:
    """The step to a jaxlib that jax takes: not every release of jax has one of its own, none takes a newer one."""
    row = facts.release("jax", jax)
    bounds = row["jaxlib_range"] if row is not None else ""
    fitting = next(
        (str(known) for known in facts.releases("jaxlib") if bounds and admits(bounds, str(known))), None
    )
    if fitting is None and needed is None:
        fitting = jax
    if fitting is not None:
        return moved("jaxlib", present, fitting)
    to = f">={needed},<={jax}"
    return Action("upgrade", package="jaxlib", from_=present, to=to, command=install_command([f"jaxlib{to}"]))


def _jax_for(jaxlib: str) -> str:
    """The jax of the jaxlib's own version, else the newest that takes it."""
    if facts.is_known("jax", jaxlib):
        return jaxlib
    takes = (
        str(known)
        for known, row in facts.releases("jax").items()
        if row["jaxlib_range"] and admits(row["jaxlib_range"], jaxlib)
    )
    return next(takes, jaxlib)


def _jax_fixes(
    base: str | None, lib: str | None, parts: Mapping[str, Distribution], lib_off: bool, needed: str | None
) -> tuple[Fix, ...]:
    family = next((name.rsplit("-", 1)[0] for name in parts), None)
    names = [f"{family}-plugin", f"{family}-pjrt"] if family else []
    versions = [version for found in parts.values() if (version := parse(found.version)) is not None]
    newest = str(max(versions)) if versions else ""
    if base is None:
        to = f"=={newest}" if newest else None
        return (_pins(["jax", "jaxlib", *names], to),)
    fixes: list[Fix] = []
    step = _jaxlib_for(base, lib, needed)
    kept = lib if lib is not None and not lib_off else (step.to or "").removeprefix("==")
    is_exact = parse(kept) is not None
    beside = _pins(names, f"=={kept}", parts) if is_exact and _are_off(parts, kept) else ()
    if lib_off:
        fixes.append((step, *beside))
    elif names:
        fixes.append(_pins(names, f"=={kept if is_exact else base}", parts))
    if newest and parse(newest) != parse(base):
        rest = _pins(names, f"=={newest}", parts) if _are_off(parts, newest) else ()
        library = Action("upgrade", package="jaxlib", to=f"=={newest}")
        fixes.append((moved("jax", base, newest), moved("jaxlib", lib, newest) if lib else library, *rest))
    if lib_off and lib is not None:
        rest = _pins(names, f"=={lib}", parts) if _are_off(parts, lib) else ()
        fixes.append((moved("jax", base, _jax_for(lib)), *rest))
    return tuple(fixes) or (_pins(["jax", "jaxlib", *names], f"=={base}"),)


def _are_off(parts: Mapping[str, Distribution], version: str) -> bool:
    return any(found.version and parse(found.version) != parse(version) for found in parts.values())


def _pins(names: list[str], to: str | None, present: Mapping[str, Distribution] | None = None) -> Fix:
    line = install_command([f"{name}{to or ''}" for name in names])
    return tuple(
        Action(
            "pin",
            package=name,
            from_=present[name].version if present and name in present else None,
            to=to,
            command=line,
        )
        for name in names
    )


def coremltools(told: Told) -> Iterator[Finding]:
    """coremltools without a wheel for this Python is installed from source, without its native libraries."""
    said = told.symptom("coremltools_missing")
    found = told.installed("coremltools")
    version = found.version if found is not None else None
    row = facts.release("coremltools", version)
    python = told.environment.python
    outside = row is not None and limits.python_fits(told.environment, row) is False
    if said is None and not outside:
        return
    fixes = _coremltools_fixes(told, version, row)
    text = message(
        "stack.coremltools_no_wheel",
        version=version or "",
        python=python or "?",
        high=(row["wheel_python_max"] if row else "") or "?",
    )
    yield Finding(
        "coremltools_python",
        "will_fail",
        text,
        "coremltools-range",
        "both" if said and outside else "message" if said else "facts",
        29,
        ("coremltools",),
        fixes,
        (*facts.package_fact("coremltools", version), facts.rule_fact("coremltools-range")),
    )


def _coremltools_fixes(told: Told, version: str | None, row: facts.Row | None) -> tuple[Fix, ...]:
    """A Python that the release has wheels for, or the first later release with a wheel for the Python."""
    python = told.environment.python
    fixes: list[Fix] = []
    if row is not None:
        fixes.append(
            (Action("python", from_=python, to=f">={row['wheel_python_min']},<={row['wheel_python_max']}"),)
        )
    later = next(
        (
            known
            for known in sorted(facts.releases("coremltools"))
            if limits.python_fits(told.environment, facts.releases("coremltools")[known])
            and (version is None or known > (parse(version) or known))
        ),
        None,
    )
    if later is not None:
        fixes.append(
            (
                Action(
                    "upgrade",
                    package="coremltools",
                    from_=version,
                    to=f">={later.major}.{later.minor}",
                    command=f'pip install "coremltools>={later}"',
                ),
            )
        )
    if not fixes:
        newest = next(iter(facts.releases("coremltools").values()))
        fixes.append(
            (
                Action(
                    "python",
                    from_=python,
                    to=f">={newest['wheel_python_min']},<={newest['wheel_python_max']}",
                ),
            )
        )
    return tuple(fixes)


def neuron(told: Told) -> Iterator[Finding]:
    """All parts of the Neuron SDK come from one release."""
    said = told.symptom("neuron_flags", "neuron_neff") or _nrt_symbol(told)
    if said is None:
        return
    runtime = told.installed("aws-neuronx-runtime-lib")
    fixes: list[Fix] = []
    if said.id in ("undefined_symbol", "neuron_neff"):
        line = "apt-get install -y aws-neuronx-tools aws-neuronx-runtime-lib aws-neuronx-collectives"
        present = runtime.version if runtime is not None else None
        tools = Action("install_build", package="aws-neuronx-tools", command=line)
        fixes.append(
            (tools, Action("upgrade", package="aws-neuronx-runtime-lib", from_=present, command=line))
        )
        fixes.append((Action("upgrade", package="aws-neuronx-runtime-lib", from_=present, command=line),))
    else:
        lib, torch = told.installed("libneuronxla"), told.installed("torch-neuronx")
        fixes.append((Action("downgrade", package="libneuronxla", from_=lib.version if lib else None),))
        fixes.append(
            (
                Action("pin", package="torch-neuronx", from_=torch.version if torch else None),
                Action("pin", package="libneuronxla"),
            )
        )
    yield Finding(
        "neuron_lockstep",
        "will_fail",
        message("stack.neuron_mixed"),
        "neuron-lockstep",
        "message",
        29,
        tuple(
            name
            for name in ("torch-neuronx", "libneuronxla", "aws-neuronx-runtime-lib")
            if told.mentions(name)
        ),
        tuple(fixes),
        (facts.rule_fact("neuron-lockstep"),),
    )


def _nrt_symbol(told: Told) -> Symptom | None:
    return next((item for item in told.symptoms if item.params.get("symbol", "").startswith("nrt_")), None)


RULES: tuple[Rule, ...] = (
    torch_xla,
    jax_lockstep,
    coremltools,
    neuron,
)
