"""Text in terminal cells: Chinese characters take two, and lines break between them."""

from __future__ import annotations

import re
import unicodedata

_TOKEN = re.compile(r"\s+|\S+")
_CLOSING = "\uff0c\u3002\u3001\uff1b\uff1a\uff1f\uff01\uff09\u300d\u300b"


def cell_width(text: str) -> int:
    """How many terminal columns `text` takes."""
    return len(text) if text.isascii() else sum(_char_width(char) for char in text)


def pad(text: str, width: int, align: str = "left") -> str:
    """`text` filled with blanks up to `width` columns."""
    room = " " * max(0, width - cell_width(text))
    return room + text if align == "right" else text + room


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken at blanks and beside wide characters."""
    lines: list[str] = []
    line = ""
    for token in _tokens(text):
        if cell_width(line) + cell_width(token.rstrip()) > width:
            lines += [line.rstrip()] if line.strip() else []
            line = ""
            token = token.lstrip()
        while cell_width(token) > width:
            head = _head(token, width)
            lines.append(head)
            token = token[len(head) :]
        line += token
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def _tokens(text: str) -> list[str]:
    """Blanks, words, and every wide character by itself; closing punctuation stays with what it closes."""
    tokens: list[str] = []
    for piece in _TOKEN.findall(text):
        if piece.isascii():
            tokens.append(piece)
            continue
        word = ""
        for char in piece:
            if _char_width(char) == 2 and char not in _CLOSING:
                tokens.extend(filter(None, (word,)))
                word = char
            elif word and _char_width(word[-1]) == 2 and _char_width(char) == 1:
                tokens.append(word)
                word = char
            else:
                word += char
        tokens.extend(filter(None, (word,)))
    return tokens


def _head(text: str, width: int) -> str:
    taken = 0
    for index, char in enumerate(text):
        taken += _char_width(char)
        if taken > width:
            return text[: max(index, 1)]
    return text
