"""English prose out of docstrings and README files: no code, no tables, no mark-up."""

from __future__ import annotations

import re

# `text <target>`_, :role:`~package.name` and ``code`` of reStructuredText; [text](url) of Markdown.
_MARKUP = (
    (re.compile(r":[a-z:]+:`[~!.]*([^`<]+?)(?:\s*<[^`>]*>)?`"), r"\1"),
    (re.compile(r"`([^`<]+?)\s*<[^`>]*>`_+"), r"\1"),
    (re.compile(r"!?\[([^\]]*)\]\([^)]*\)"), r"\1"),
    (re.compile(r"<[^<>\n]{1,200}>"), " "),
    (re.compile(r"https?://\S+"), " "),
    (re.compile(r"[`*_]{1,3}(?=\S)([^`*\n]+?)[`*_]{1,3}(?!\w)"), r"\1"),
)
_UNDERLINED = re.compile(r"^.*\n[ \t]*([-=~^\"#*+])\1{2,}[ \t]*$", re.MULTILINE)
_NO_LETTERS = re.compile(r"[\W\d_]+")
_CODE_SIGNS = re.compile(r"[=(){}\[\]<>_|\\;]")
_MIN_WORDS = 6
_MIN_LETTER_SHARE = 0.75
_MAX_CODE_SHARE = 0.05
_MIN_ASCII_SHARE = 0.95


def paragraphs(text: str) -> list[str]:
    """Return the paragraphs that are prose, each on one line."""
    blocks = re.split(r"\n\s*\n", _UNDERLINED.sub("", text))
    cleaned = (_clean(block) for block in blocks if not _is_code_block(block))
    return [block for block in cleaned if _is_prose(block)]


def _is_code_block(block: str) -> bool:
    return any(line.lstrip().startswith((">>>", "$ ", "```", "::")) for line in block.split("\n"))


def _clean(block: str) -> str:
    for expression, replacement in _MARKUP:
        block = expression.sub(replacement, block)
    lines = (line.strip(" \t#*-=~^+|") for line in block.split("\n"))
    return " ".join(" ".join(line for line in lines if not line.startswith("..")).split())


def _is_prose(block: str) -> bool:
    signs = len(block.replace(" ", ""))
    if len(block.split()) < _MIN_WORDS or not signs:
        return False
    return (
        len(_NO_LETTERS.sub("", block)) >= _MIN_LETTER_SHARE * signs
        and len(_CODE_SIGNS.findall(block)) <= _MAX_CODE_SHARE * signs
        and len(block.encode("ascii", "ignore")) >= _MIN_ASCII_SHARE * len(block)
    )
