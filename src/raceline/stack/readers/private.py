"""Private values taken out of what is kept of a text: names of people and machines, addresses, tokens."""

from __future__ import annotations

import re

_HIDDEN = "***"
_PATTERNS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(?i)\b(\w{2,12}://)[^\s/@]{1,200}@"), rf"\1{_HIDDEN}@"),
    (re.compile(r"\b(?:hf|ghp|gho|ghs|github_pat|glpat|sk|pk|rk|xox[abp]|npm|pypi)[-_][\w-]{10,300}"), _HIDDEN),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,20}\b"), _HIDDEN),
    (re.compile(r"\beyJ[\w-]{10,2000}\.[\w-]{5,4000}(?:\.[\w-]{0,2000})?"), _HIDDEN),
    (
        re.compile(
            r"(?i)((?:api|access|secret|private|auth)?[-_]?(?:key|token|secret|passw(?:or)?d|pwd|bearer))(\s{0,3}[=:]\s{0,3}|\s)"
            r"[\"']?[^\s\"']{6,300}"
        ),
        rf"\1\2{_HIDDEN}",
    ),
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){1,6}\b"), _HIDDEN),
    (re.compile(r"(?i)((?:/home|/users|/mnt/[a-z]/users|[a-z]:\\users|[a-z]:/users)[\\/])[^\\/\s\"':,;)]{1,64}"), rf"\1{_HIDDEN}"),
    (re.compile(r"\b[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){0,6}(?=[\s:~/$#\])]|$)"), f"{_HIDDEN}@{_HIDDEN}"),
    (re.compile(r"\b(?!127\.0\.0\.1\b)\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}(?=:\d)"), _HIDDEN),
    (re.compile(r"(?<![\w.=<>~+-])(?:10|127|192\.168|172\.(?:1[6-9]|2\d|3[01])|169\.254)(?:\.\d{1,3}){2,3}(?![\w.])"), _HIDDEN),
    (re.compile(r"(?i)\b(?:from|to|at|host|connect(?:ed)?|ip|address|server)(\s{1,3}|[=:]\s?)\d{1,3}(?:\.\d{1,3}){3}\b"), rf"\1{_HIDDEN}"),
    (re.compile(r"\b[\w-]{1,63}(?:\.[\w-]{1,63}){0,5}\.(?:local|lan|internal|corp|intranet|home|lab)\b(?:\.[a-z]{2,10})?"), _HIDDEN),
    (re.compile(r"(?i)\b(host(?:name)?|node|server|user(?:name)?|computer)(\s{0,3}[=:]\s{0,3})[^\s,;]{1,100}"), rf"\1\2{_HIDDEN}"),
    (re.compile(r"\bGPU-[0-9a-f]{8}-[0-9a-f-]{20,40}"), _HIDDEN),
)  # fmt: skip
LONGEST_LINE = 300


def redacted(line: str) -> str:
    """One line, at most LONGEST_LINE characters, with private values replaced by three stars."""
    text = " ".join(line[: 4 * LONGEST_LINE].split())
    for pattern, hidden in _PATTERNS:
        text = pattern.sub(hidden, text)
    return text[:LONGEST_LINE]
