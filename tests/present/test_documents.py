"""Loaders refuse what is hostile and read what people write."""

from __future__ import annotations

import contextlib
import gc
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raceline.present.documents import iterate_jsonl, load_json, load_yaml, load_yaml_with_lines
from raceline.present.errors import InputError

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=20,
)
BOMB = b"a: &a [x, x, x, x, x, x, x, x, x, x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (98 + i, 98 + i, b", ".join([b"*%c" % (97 + i)] * 10)) for i in range(9)
)
HOSTILE_JSON = {
    "deep": b"[" * 1000, "deep in keys": b'{"a":' * 1000, "duplicate": b'{"a": 1, "a": 2}', "empty": b"",
    "truncated": b'{"a": [1, 2', "not text": b"\xff\xfe", "long number": b"1" * 5000, "nan": b"[NaN]",
    "many": b"[" + b"1," * 2_500_000 + b"1]", "huge": b" " * (33 * 2**20),
    "keys": b"{" + b",".join(b'"%d":1' % at for at in range(700_000)) + b"}",
    "escapes": b'["' + b'\\"' * 9_000_000,
}  # fmt: skip
HOSTILE_YAML = {
    "bomb": BOMB, "deep": b"[" * 1000, "deep blocks": b"- " * 1000 + b"1", "duplicate": b"a: 1\na: 2\n",
    "tag": b"a: !!python/object:os.system x", "several": b"--- 1\n--- 2\n", "alias": b"a: *b",
    "key": b"? [1]\n: 2",
    "many": b"- 1\n" * 20_000, "huge": b"a\n" * 300_000, "colons": b"a: b: c", "null byte": b"a: \0",
}  # fmt: skip


def refused(load: Any, data: bytes) -> InputError:
    gc.disable()  # what other tests left behind is not this reader's time
    started = time.process_time()
    try:
        with pytest.raises(InputError) as caught:
            load(data)
        assert time.process_time() - started < 1.0
    finally:
        gc.enable()
    return caught.value


@pytest.mark.parametrize("fault", HOSTILE_JSON)
def test_hostile_json_is_refused_within_a_second(fault: str) -> None:
    assert refused(load_json, HOSTILE_JSON[fault]).message.id.startswith("present.")


@pytest.mark.parametrize("fault", HOSTILE_YAML)
def test_hostile_yaml_is_refused_within_a_second(fault: str) -> None:
    assert refused(load_yaml, HOSTILE_YAML[fault]).message.id.startswith("present.")


@given(VALUES)
def test_json_reads_back(value: Any) -> None:
    assert load_json(json.dumps(value).encode()) == value


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    for load in (load_json, load_yaml, lambda data: list(iterate_jsonl(data))):
        with contextlib.suppress(InputError):
            load(data)


def test_yaml_follows_the_core_schema() -> None:
    data = b"a: 1.0e9\nb: no\nc: 012\nd: 2026-01-01\ne: ~\nf: 0x1F\ng: '1'\nh: true\ni: -.inf\n"
    assert load_yaml(data) == {
        "a": 1e9, "b": "no", "c": 12, "d": "2026-01-01", "e": None, "f": 31, "g": "1", "h": True, "i": -1e999,
    }  # fmt: skip


def test_a_small_alias_is_read() -> None:
    assert load_yaml(b"a: &x {b: 1}\nc: *x\n") == {"a": {"b": 1}, "c": {"b": 1}}


def test_flow_mappings_that_are_not_json_are_read() -> None:
    assert load_yaml(b"{task: train, seq_len: 8192}") == {"task": "train", "seq_len": 8192}


def test_fields_know_their_line() -> None:
    _, lines = load_yaml_with_lines(b"offers:\n- id: a\n  price: 1\n- id: b\n")
    assert (lines["offers[0].price"], lines["offers[1].id"]) == (3, 4)


def test_an_error_names_its_line() -> None:
    assert refused(load_yaml, b"a: 1\nb: [\n").message.params["line"] >= 2


def test_a_bad_line_stands_in_its_place() -> None:
    first, second, third = iterate_jsonl(b'{"a": 1}\nnonsense\n\n{"a": 3}\n')
    assert (first, third) == ({"a": 1}, {"a": 3})
    assert isinstance(second, InputError) and second.message.params["line"] == 2


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.json", "a\0b"):
        with pytest.raises(InputError):
            load_json(path)


def test_infinity_is_read_as_state_space_configs_hold_it() -> None:
    assert load_json(b'{"time_step_limit": [0.0, Infinity]}')["time_step_limit"][1] == float("inf")
