"""The message catalogues agree with each other and with the code."""

from __future__ import annotations

import ast
import re
import string
import sys

import pytest
from sources import ROOT, SOURCE, docstrings, modules

babel = pytest.importorskip("babel.messages.pofile")
sys.path.insert(0, str(ROOT / "tools"))
import messages as tool  # noqa: E402

MESSAGES = SOURCE / "present/messages"
DOMAINS = sorted(path.stem for path in (MESSAGES / "en").glob("*.po"))
LAYERS = ("present", "models", "catalog", "evidence", "estimate", "accuracy", "stack", "plan", "cli")
_ID = re.compile(rf"(?:{'|'.join(LAYERS)})\.[a-z][a-z0-9_]*")
# ids made from words of data: the words that a result may name
_WORDS = "present.word_"


def texts(language: str, domain: str) -> dict[str, str]:
    with (MESSAGES / language / f"{domain}.po").open("rb") as file:
        return {entry.id: entry.string for entry in babel.read_po(file) if entry.id}


def placeholders(text: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(text) if name is not None}


@pytest.mark.parametrize("domain", DOMAINS)
def test_both_languages_have_the_same_ids_and_placeholders(domain):
    english, chinese = texts("en", domain), texts("zh", domain)
    assert english.keys() == chinese.keys()
    differing = {id for id in english if placeholders(english[id]) != placeholders(chinese[id])}
    assert not differing


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("domain", DOMAINS)
def test_every_text_is_filled_and_belongs_to_its_domain(domain, language):
    found = texts(language, domain)
    assert all(found.values())
    assert all(id.startswith(f"{domain}.") for id in found)


@pytest.mark.parametrize("domain", DOMAINS)
def test_placeholders_are_plain_names(domain):
    names = {name for text in texts("en", domain).values() for name in placeholders(text)}
    assert all(name.isidentifier() for name in names)
    assert not re.search(r"\{[^}]*:", "".join(texts("en", domain).values())), "units come from the name"


def test_chinese_texts_are_chinese():
    """Texts of several words must not be English left over."""
    left = [
        id
        for domain in DOMAINS
        for id, text in texts("zh", domain).items()
        if not re.search(r"[\u4e00-\u9fff]", text)
        and len(re.findall(r"[A-Za-z]{3,}", re.sub(r"\{\w+\}", "", text))) > 2
    ]
    assert not left


def test_compiled_catalogues_are_fresh():
    assert tool.stale() == [], "run: make messages"


def used() -> tuple[set[str], set[str]]:
    """Ids that stand in the code, and patterns of those that it puts together."""
    ids, patterns = set(), set()
    for tree in modules().values():
        skipped = docstrings(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
                ids |= {node.value} if _ID.fullmatch(node.value) else set()
            elif isinstance(node, ast.JoinedStr):
                pattern = "".join(
                    re.escape(str(part.value)) if isinstance(part, ast.Constant) else r"[a-z0-9_]+"
                    for part in node.values
                )
                patterns |= {pattern} if re.match(rf"(?:{'|'.join(LAYERS)})\\\.[a-z\[]", pattern) else set()
    # parts of an id that is put together are no ids
    return {item for item in ids if not item.endswith("_")}, patterns


def catalogue_ids() -> set[str]:
    return {id for domain in DOMAINS for id in texts("en", domain)}


def test_every_id_in_the_code_has_a_text():
    ids, patterns = used()
    known = catalogue_ids()
    assert sorted(ids - known) == []
    assert [pattern for pattern in patterns if not any(re.fullmatch(pattern, id) for id in known)] == []


def test_every_text_is_used():
    ids, patterns = used()
    unused = {
        id
        for id in catalogue_ids() - ids
        if not id.startswith(_WORDS) and not any(re.fullmatch(pattern, id) for pattern in patterns)
    }
    assert sorted(unused) == []
