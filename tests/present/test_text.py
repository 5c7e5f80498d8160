"""Messages as text and as JSON."""

import json

import msgspec
import numpy as np

from raceline.present.errors import InputError, Message, message
from raceline.present.text import builtin, content, error_data, one_line, render, word
from raceline.present.views import Quantity


def test_a_message_is_rendered_in_the_language_asked_for():
    item = message("cli.unknown_schema", given="x", known="a, b")
    assert render(item, "en") == "there is no schema x; known: a, b"
    assert render(item, "zh") == "没有名为 x 的 schema；可用：a, b"


def test_an_unknown_language_falls_back_to_english():
    assert render(word("train"), "fr") == "training"


def test_an_unknown_id_shows_itself_with_its_parameters():
    assert render(message("plan.not_there", needed_gib=31.24)) == "plan.not_there (needed_gib=31.2 GiB)"


def test_a_missing_parameter_shows_the_id_rather_than_failing():
    assert render(Message("cli.unknown_schema", {"given": "x"})) == "cli.unknown_schema (given=x)"


def test_a_hostile_id_does_not_leave_the_catalogue_folder():
    assert render(message("../../secrets.x")) == "../../secrets.x"


def test_a_parameter_is_never_a_template():
    item = message("cli.unknown_schema", given="{known.__class__}", known="a")
    assert "{known.__class__}" in render(item)


def test_a_long_parameter_is_cut():
    assert len(render(message("cli.unknown_schema", given="x" * 10_000, known=""))) < 500


def test_messages_nest():
    assert render(message("cli.unknown_schema", given=word("train"), known=[word("lora")]), "zh").startswith(
        "没有名为 训练"
    )


def test_a_label_of_several_parts_is_joined():
    assert content((word("memory"), Quantity(31.24, "gib"), "x"), "en") == "memory bandwidth 31.2 GiB x"


def test_json_of_a_message_carries_the_english_text():
    data = builtin({"warnings": (message("cli.unknown_schema", given="x", known="y"),)})
    assert data["warnings"][0]["text"] == "there is no schema x; known: y"
    assert data["warnings"][0]["params"] == {"given": "x", "known": "y"}


def test_json_has_no_numbers_that_json_does_not_know():
    assert json.loads(json.dumps(builtin([float("nan"), float("inf"), np.float32(1.5), np.arange(2)]))) == [
        None, None, 1.5, [0, 1],
    ]  # fmt: skip


def test_json_of_a_struct_uses_its_published_names():
    class Row(msgspec.Struct, rename="upper", tag="row"):
        name: str

    assert builtin(Row("a")) == {"type": "row", "NAME": "a"}


def test_error_json_names_the_field():
    data = error_data(InputError("cli.unknown_schema", field="NAME", given="x", known="y"))
    assert data["field"] == "NAME"
    assert data["message"] == "there is no schema x; known: y"


def test_control_characters_do_not_reach_the_terminal():
    assert one_line("a\x1b[31m\nb") == "a [31m b"
