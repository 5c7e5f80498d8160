"""The fact tables hold together: shape, sources, and what one table says of another."""

from __future__ import annotations

import csv
import datetime
import json
import os
import re
from pathlib import Path

import pytest
from packaging.version import Version

from raceline.catalog import load
from raceline.stack import facts, limits
from raceline.stack.age import old_tables, unknown_versions
from raceline.stack.readers import read_text
from raceline.stack.readers.errors import patterns
from raceline.stack.versions import admits, minor, specifier

HANDED = Path(os.environ.get("RACELINE_CASES") or Path(__file__).parents[3] / "shared") / "stack"
TODAY = datetime.date(2026, 12, 1)
DAY = re.compile(r"20\d\d(-\d\d(-\d\d)?)?")
# torch x.y -> CUDA of the default Linux wheel, as the notes on the stack state it
DEFAULT_CUDA = {
    "2.0": "11.7", "2.1": "12.1", "2.2": "12.1", "2.3": "12.1", "2.4": "12.1", "2.5": "12.4", "2.6": "12.4",
    "2.7": "12.6", "2.8": "12.8", "2.9": "12.8", "2.10": "12.8", "2.11": "13.0", "2.12": "13.0", "2.13": "13.0",
    "2.14": "13.0", "2.15": "13.2",
}  # fmt: skip
# cards of which the catalogue and the table of names speak of another variant: none
KNOWN_DIFFERENCES: set[str] = set()


@pytest.mark.parametrize("name", facts.TABLES)
def test_every_row_has_a_source_and_a_day(name: str) -> None:
    rows = facts.table(name)
    assert rows
    for row in rows:
        assert None not in row, f"a cell too many: {row}"
        assert all(item.startswith("https://") for item in row["source_url"].split()), row
        assert row["source_url"].strip(), row
        assert DAY.fullmatch(row["as_of"]), row


@pytest.mark.parametrize("name", facts.TABLES)
def test_no_row_stands_twice(name: str) -> None:
    keys = [facts.fact(name, row).row for row in facts.table(name)]
    if name == "tensorrt":
        keys = [f"{row['kind']} {key}" for row, key in zip(facts.table(name), keys, strict=True)]
    if name == "cudnn":
        keys = [
            f"{row['kind']} {key} {row['cuda_toolkits']}"
            for row, key in zip(facts.table(name), keys, strict=True)
        ]
    assert len(keys) == len(set(keys)), {key for key in keys if keys.count(key) > 1}


@pytest.mark.parametrize("package", facts.PACKAGE_TABLES)
def test_releases_have_versions_dates_and_bounds_that_can_be_read(package: str) -> None:
    for version, row in facts.releases(package).items():
        assert isinstance(version, Version)
        assert not row["release_date"] or datetime.date.fromisoformat(row["release_date"]) <= TODAY
        for column in ("requires_python", "numpy", "protobuf", "torch", "jaxlib_range"):
            assert specifier(row.get(column) or "") is not None, row
        for column in row:
            if column.startswith("glibc_min") and row[column]:
                assert re.fullmatch(r"2\.\d{1,2}", row[column]), row


def test_the_default_cuda_of_torch_is_as_stated() -> None:
    for version, row in facts.releases("torch").items():
        wanted = DEFAULT_CUDA.get(f"{version.major}.{version.minor}")
        assert wanted is None or minor(row["pypi_default_cuda"]) == wanted, version


def test_capabilities_belong_to_known_releases_and_builds() -> None:
    for row in facts.table("torch_arch"):
        release = facts.release("torch", row["torch"])
        assert release is not None
        builds = {*release["cuda_builds"].split(), minor(release["pypi_default_cuda"])}
        assert not release["cuda_builds"] or row["cuda_build"] in builds, row


def test_capabilities_lie_within_what_the_toolkit_compiles() -> None:
    for row in facts.table("torch_arch"):
        for version, _, _ in limits.compiled_list(row["arch_list"]):
            known = limits.architecture_row(str(version))
            assert known is not None, row
            assert Version(known["first_cuda"]) <= Version(row["cuda_build"]), (row, str(version))
            assert not known["last_cuda"] or Version(row["cuda_build"]) <= Version(known["last_cuda"]), (
                row,
                str(version),
            )


def test_newer_toolkits_come_with_newer_drivers() -> None:
    rows = [row for row in facts.table("cuda_driver") if row["driver_packaged_linux"]]
    drivers = [Version(row["driver_packaged_linux"]) for row in rows]
    assert drivers == sorted(drivers, reverse=True)


def test_a_floor_is_one_for_the_whole_major_from_11_on() -> None:
    floors: dict[str, set[str]] = {}
    for row in facts.table("cuda_driver"):
        if row["minor_version_compat"] == "yes":
            floors.setdefault(row["cuda"].split(".")[0], set()).add(row["min_driver_linux"])
    assert floors == {"11": {"450.80.02"}, "12": {"525.60.13"}, "13": {"580"}}


def test_exact_pins_name_torch_releases_that_are_known() -> None:
    known = {str(version) for version in facts.releases("torch")}
    for package in ("vllm", "xformers", "sglang"):
        for version, row in facts.releases(package).items():
            if row["torch"].startswith("==") and "*" not in row["torch"]:
                pin = row["torch"].removeprefix("==").split("+")[0]
                assert pin in known or Version(pin) < Version("1.8"), (package, version, pin)


def test_gpus_have_a_capability_that_is_known_or_a_target() -> None:
    for row in facts.table("gpus"):
        assert bool(row["capability"]) != bool(row["gfx"]), row
        assert not row["capability"] or limits.architecture_row(row["capability"]), row


def test_gpus_agree_with_the_catalogue() -> None:
    from raceline.stack.gpus import look_up

    different = {}
    for item in load.accelerators().values():
        if item.vendor != "NVIDIA" or item.compute_capability is None:
            continue
        found = look_up(item.name).capability
        if found != f"{item.compute_capability:.1f}":
            different[item.name] = (found, item.compute_capability)
    assert set(different) == KNOWN_DIFFERENCES, different


def test_rules_have_a_source_and_known_grades() -> None:
    for rule in facts.rules().values():
        assert rule.source_url.startswith("https://")
        assert rule.severity in ("error", "warn", "info")
        assert rule.confidence in ("stated", "metadata", "reported", "inferred", "background")
        assert DAY.fullmatch(rule.as_of)
        assert rule.check


@pytest.mark.parametrize("path", sorted(HANDED.glob("*.csv")), ids=lambda path: path.stem)
def test_every_handed_row_is_here(path: Path) -> None:
    with path.open(encoding="utf-8", newline="") as file:
        handed = list(csv.DictReader(file))
    ours = [dict(row) for row in facts.table(path.stem)]
    assert [row for row in handed if row not in ours] == []


@pytest.mark.skipif(not HANDED.exists(), reason="the handed tables are not here")
def test_every_handed_rule_is_here() -> None:
    from raceline.present.documents import load_yaml

    handed = {item["id"] for item in load_yaml(HANDED / "rules.yaml")["rules"]}
    assert handed <= set(facts.rules())


def test_symptoms_name_rules_that_there_are_and_their_tokens_are_in_lower_case() -> None:
    for item in patterns():
        assert item.rule is None or item.rule in facts.rules(), item.id
        assert item.token == item.token.lower()
        re.compile(item.pattern, re.IGNORECASE)


def test_old_tables_are_told_with_their_age() -> None:
    assert old_tables(TODAY) == ()
    (told,) = old_tables(datetime.date(2027, 8, 1))
    assert told.params["days"] > 200
    assert "torch" in told.params["tables"]


def test_a_release_that_is_not_known_is_named_with_the_newest_that_is() -> None:
    (told,) = unknown_versions(read_text("torch==7.0.0\nnumpy==2.1.3\n"))
    assert told.params == {
        "package": "torch",
        "version": "7.0.0",
        "newest": str(next(iter(facts.releases("torch")))),
    }


def test_tables_and_rules_are_plain_data() -> None:
    assert json.dumps(facts.as_json(), default=str)


@pytest.mark.parametrize("package", facts.PACKAGE_TABLES)
def test_releases_stand_in_order_and_none_is_a_new_pre_release(package: str) -> None:
    versions = [Version(row["version"]) for row in facts.table(facts.PACKAGE_TABLES[package])]
    assert versions == sorted(versions)


@pytest.mark.parametrize("package", facts.PACKAGE_TABLES)
def test_windows_of_pythons_are_of_pythons_that_there_are(package: str) -> None:
    known = {row["python"] for row in facts.table("python_eol")} | {"2.7", "3.3", "3.4", "3.5"}
    for row in facts.table(facts.PACKAGE_TABLES[package]):
        low, high = (
            row.get(f"wheel_python_{end}") or row.get(f"python_{end}") or "" for end in ("min", "max")
        )
        assert bool(low) == bool(high), row
        assert not low or ({low, high} <= known and Version(low) <= Version(high)), row


def test_torchvision_and_torchaudio_pair_with_the_torch_that_names_them() -> None:
    for version, row in facts.releases("torch").items():
        for package in ("torchvision", "torchaudio"):
            paired = facts.release(package, row[package])
            if paired is None or not paired["torch"].startswith("=="):
                continue
            assert admits(paired["torch"], str(version)), (package, row[package], str(version))


def test_exact_pins_on_torch_by_its_own_family_name_known_releases() -> None:
    known = {str(version) for version in facts.releases("torch")}
    for package in ("torchvision", "torchaudio"):
        for version, row in facts.releases(package).items():
            if row["torch"].startswith("=="):
                assert row["torch"].removeprefix("==") in known, (package, version)


def test_exact_pins_on_torchvision_and_torchaudio_are_releases() -> None:
    for version, row in facts.releases("vllm").items():
        for package in ("torchvision", "torchaudio"):
            if row[package].startswith("=="):
                assert facts.is_known(package, row[package].removeprefix("==").split("+")[0]), (
                    version,
                    package,
                )


def test_a_torch_plugin_of_jax_is_of_the_release_it_is_bound_to() -> None:
    released = {(row["package"], row["version"]) for row in facts.table("jax_plugins")}
    for row in facts.table("jax_plugins"):
        if row["pjrt"].startswith("=="):
            part = row["package"].replace("plugin", "pjrt")
            # its first release came before that of the part
            assert (part, row["pjrt"].removeprefix("==")) in released or row["version"] == "0.4.22", row


def test_every_jax_has_a_jaxlib_that_it_admits() -> None:
    oldest = min(facts.releases("jaxlib"))
    for version, row in facts.releases("jax").items():
        if row["jaxlib_range"] and version >= oldest:
            assert any(admits(row["jaxlib_range"], str(item)) for item in facts.releases("jaxlib")), version


def test_tensorflow_and_its_build_without_gpus_ask_for_the_same() -> None:
    for version, row in facts.releases("tensorflow-cpu").items():
        whole = facts.release("tensorflow", str(version))
        if whole is not None and "|" not in whole["numpy"] and row["numpy"]:
            assert specifier(row["numpy"]) == specifier(whole["numpy"]), version


def test_the_page_of_the_facts_is_current() -> None:
    import runpy

    tool = runpy.run_path(str(Path(__file__).parents[2] / "tools" / "stack_facts_page.py"))
    assert tool["PAGE"].read_text(encoding="utf-8") == tool["page"]()


def test_the_first_releases_for_numpy_2_are_releases_that_admit_it() -> None:
    for row in facts.table("numpy2_builds"):
        if row["package"] in facts.PACKAGE_TABLES:
            release = facts.release(row["package"], row["first_version"])
            assert release is not None, row
            assert admits(release.get("numpy"), "2.0.0"), row
