"""The group: help, errors, exit codes, language."""

import json
import subprocess
import sys
import time

import pytest

from raceline.cli import group, run
from raceline.cli.language import choose_language, take_language
from raceline.present.errors import InputError


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    for name in ("RACELINE_LANG", "LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)


def test_help_takes_at_most_a_quarter_of_a_cpu_second():
    code = (
        "import sys, time\nfrom raceline.cli import run\nrun(['--help'])\n"
        "heavy = {'numpy', 'rich', 'ruamel'} & set(sys.modules)\n"
        "print(heavy, time.process_time(), file=sys.stderr)"
    )
    told = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stderr for _ in range(3)
    ]
    assert all(line.startswith("set() ") for line in told), told
    assert min(float(line.split()[1]) for line in told) <= 0.25


@pytest.mark.parametrize("name", group.COMMANDS)
def test_every_command_loads_and_has_help(name, capsys):
    assert run([name, "--help"]) == 0
    assert "--help" in capsys.readouterr().out


def test_help_is_in_the_language_asked_for(capsys):
    assert run(["--help", "--lang", "zh"]) == 0
    assert "命令" in capsys.readouterr().out


def test_a_wrong_command_is_one_line_and_exit_code_2(capsys):
    assert run(["nope"]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "error: No such command 'nope'. See: raceline --help\n"


def test_an_input_error_names_the_field_in_the_users_language(capsys):
    assert run(["--lang", "zh", "schema", "nope"]) == 2
    assert capsys.readouterr().err.startswith("错误: NAME: 没有名为 nope")


def test_with_json_an_error_is_json_on_stdout(capsys):
    assert run(["nope", "--json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["id"] == "cli.usage"
    assert error["message"].startswith("No such command")


def test_an_interrupt_ends_with_130(monkeypatch, capsys):
    @group.click.command()
    def slow():
        raise KeyboardInterrupt

    monkeypatch.setattr(group.LazyGroup, "get_command", lambda self, ctx, name: slow)
    assert run(["slow"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_closed_pipe_ends_quietly():
    code = "from raceline.cli import main; import sys; sys.argv = ['raceline', 'schema', 'scenario']; main()"
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stdout.close()
    time.sleep(0)
    assert child.stderr.read() == b""
    child.stderr.close()
    assert child.wait() == 0


@pytest.mark.parametrize(
    ("flag", "environment", "language"),
    [
        (None, {}, "en"),
        ("zh", {"RACELINE_LANG": "en"}, "zh"),
        (None, {"RACELINE_LANG": "zh", "LANG": "en_US.UTF-8"}, "zh"),
        (None, {"LC_ALL": "zh_CN.UTF-8"}, "zh"),
        (None, {"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        (None, {"LANG": "zh-TW"}, "zh"),
        (None, {"LANG": "de_DE.UTF-8"}, "en"),
    ],
)
def test_the_language_is_the_flag_then_the_environment(flag, environment, language):
    assert choose_language(flag, environment) == language


def test_the_language_flag_may_stand_anywhere_before_a_double_dash():
    assert take_language(["plan", "x", "--lang=zh"]) == ("zh", ["plan", "x"])
    assert take_language(["a", "--", "--lang", "zh"]) == (None, ["a", "--", "--lang", "zh"])


def test_an_unknown_language_is_refused():
    with pytest.raises(InputError):
        take_language(["--lang", "xx"])


def test_schemas_are_json_schema_and_know_their_name(capsys):
    from raceline.cli.schema import SCHEMAS

    for name in SCHEMAS:
        assert run(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out)["$id"] == name


def test_a_schema_of_an_answer_says_that_messages_carry_text(capsys):
    assert run(["schema", "estimate"]) == 0
    assert "text" in json.loads(capsys.readouterr().out)["$defs"]["Message"]["properties"]
