"""Extracts blocks of text, about a paragraph each, from the files of an installation."""

from __future__ import annotations

import html
import json
import re
import struct
from collections.abc import Iterator
from typing import Any

# A Python string or comment. Only triple-quoted strings and comments are used; the other strings
# are matched so that a quote or a hash sign inside them does not start a match.
_PYTHON = re.compile(
    r'[rRuU]?"""(?P<double>(?:[^"\\]|\\.|"(?!""))*)"""'
    r"|[rRuU]?'''(?P<single>(?:[^'\\]|\\.|'(?!''))*)'''"
    r"|(?P<comment>(?:^[ \t]*\#[^\n]*\n?)+)"
    r'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|\#[^\n]*',
    re.MULTILINE | re.DOTALL,
)
_C_COMMENT = re.compile(r"/\*.*?\*/|(?:^[ \t]*//[^\n]*\n)+", re.MULTILINE | re.DOTALL)
_C_MARGIN = re.compile(r"^[ \t]*(?:/\*+|\*+/|\*|//+[!<]?)", re.MULTILINE)
_HASH_MARGIN = re.compile(r"^[ \t]*#+[:!]?", re.MULTILINE)
_BLANK_LINE = re.compile(r"\n[ \t]*\n")
_HTML_DROPPED = re.compile(r"<(script|style)\b.*?</\1>|<!--.*?-->", re.DOTALL | re.IGNORECASE)
_HTML_BREAK = re.compile(r"</?(p|div|li|h\d|tr|pre|dt|dd|table|ul|ol)\b[^>]*>", re.IGNORECASE)
_HTML_TAG = re.compile(r"<[^<>]*>")
_ROFF_BREAK = re.compile(r"\.\s*(SH|SS|PP|P|LP|TP|IP|HP|RS|RE|Pp|Sh|Ss|It|nf|fi|sp)\b")
_ROFF_TEXT = re.compile(r"\.\s*(B|I|BR|BI|IB|IR|RB|RI|SM|SB|N[dm]|Ar|Fl|Em|Sy|Xr)\s+(.*)")
_ROFF_ESCAPES = (
    (re.compile(r"\\f(?:\[[^\]]*\]|\(..|.)"), ""),
    (re.compile(r"\\\((?:lq|rq|dq)|\\\*\((?:L\"|R\"|lq|rq)|\\\[[lr]q\]"), '"'),
    (re.compile(r"\\\((?:aq|cq|oq)|\\\[(?:aq|cq|oq)\]"), "'"),
    (re.compile(r"\\\((?:em|en)|\\\[(?:em|en)\]"), "-"),
    (re.compile(r"\\s[+-]?\d|\\[&|^,/:%]|\\\*?\(..|\\\*?\[[^\]]*\]"), ""),
    (re.compile(r"\\\"[^\n]*"), ""),
    (re.compile(r"\\[e\\]"), r"\\"),
    (re.compile(r"\\([- .'`~])"), r"\1"),
)
_MO_LITTLE, _MO_BIG = b"\xde\x12\x04\x95", b"\x95\x04\x12\xde"


def blocks(text: str) -> Iterator[str]:
    """Yield the blocks of a text, which blank lines separate."""
    for block in _BLANK_LINE.split(text):
        if block and not block.isspace():
            yield block


def python_text(source: str) -> Iterator[str]:
    """Yield the docstrings and comments of a module; it only lexes, so old syntax works too."""
    for found in _PYTHON.finditer(source):
        if comment := found["comment"]:
            yield from blocks(_HASH_MARGIN.sub("", comment))
        elif docstring := found["double"] or found["single"]:
            yield from blocks(docstring)


def c_text(source: str) -> Iterator[str]:
    """Yield the comments of a C or C++ file."""
    for found in _C_COMMENT.finditer(source):
        yield from blocks(_C_MARGIN.sub("", found[0]).removesuffix("*/"))


def manual_text(source: str) -> Iterator[str]:
    """Yield the paragraphs of a manual page (roff, man and mdoc macros)."""
    lines: list[str] = []
    for line in source.split("\n"):
        if not line.startswith((".", "'")):
            lines.append(line)
        elif _ROFF_BREAK.match(line):
            lines.append("")
        elif found := _ROFF_TEXT.match(line):
            lines.append(found[2].replace('"', ""))
    text = "\n".join(lines)
    for expression, replacement in _ROFF_ESCAPES:
        text = expression.sub(replacement, text)
    yield from blocks(text)


def html_text(source: str) -> Iterator[str]:
    """Yield the paragraphs of an HTML page."""
    text = _HTML_BREAK.sub("\n\n", _HTML_DROPPED.sub(" ", source))
    yield from blocks(html.unescape(_HTML_TAG.sub("", text)))


def json_text(source: str) -> Iterator[str]:
    """Yield the strings of a JSON file, such as a catalog of translations."""
    try:
        values: list[Any] = [json.loads(source)]
    except (ValueError, RecursionError):
        return
    while values:
        value = values.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            values.extend(reversed(value.values()))
        elif isinstance(value, list):
            values.extend(reversed(value))


def catalogue_text(data: bytes) -> Iterator[str]:
    """Yield the translations of a compiled gettext catalog.

    Format: https://www.gnu.org/software/gettext/manual/html_node/MO-Files.html
    """
    order = {_MO_LITTLE: "<", _MO_BIG: ">"}.get(data[:4])
    if order is None or len(data) < 20:
        return
    count, _, table = struct.unpack_from(f"{order}3I", data, 8)
    if table + 8 * count > len(data):
        return
    # The first entry is the header.
    for number in range(1, count):
        length, start = struct.unpack_from(f"{order}2I", data, table + 8 * number)
        text = data[start : start + length].decode("utf-8", errors="ignore")
        yield from text.split("\0")
