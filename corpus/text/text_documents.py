"""Reads documents of text files: the text between blank lines, a line, or the whole file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import BinaryIO, Literal

from corpus.text.cleaning import DocumentError, decode
from corpus.text.drops import DropReason, Rejected, RejectedFileError
from corpus.text.reading import MAX_LINE_BYTES, MEBIBYTE, read_text

MAX_DOCUMENT_BYTES = MAX_LINE_BYTES
_SPACES = b" \t\n\r\x0b\x0c"
# Single classes with possessive quantifiers, so that no amount of white space needs memory.
_GAPS = {
    "blank_line": re.compile(rb"\n[ \t\r\x0b\x0c]*+\n[ \t\n\r\x0b\x0c]*+"),
    "line": re.compile(rb"\n[ \t\n\r\x0b\x0c]*+"),
    "file": re.compile(rb"(?!)"),
}
_ENDS = {
    "blank_line": "a blank line ends a document",
    "line": "a line is a document (corpus.document)",
    "file": "the file is one document (corpus.document)",
}
_NO_SPACE = re.compile(rb"[^ \t\n\r\x0b\x0c]")
_JSON = re.compile(rb'\s*(\[\s*)?\{\s*"[^"\n]*"\s*:')


DocumentRule = Literal["file", "blank_line", "line"]


def text_documents(stream: BinaryIO, rule: DocumentRule = "blank_line") -> Iterator[str | Rejected]:
    """Yield the documents of a plain or compressed text file in order.

    :param rule: what one document is.
    :raises RejectedFileError: it is binary or JSON, or its compressed data is cut short or damaged.
    """
    offset, blocks = read_text(stream)
    first = next(blocks)
    if _JSON.match(first):
        raise RejectedFileError(
            DropReason.WRONG_FORMAT,
            "it begins like JSON, but it is read as text; end its name in .jsonl (one object a "
            "line) or set corpus.input_format",
        )
    yield from _Splitter(offset, rule).split(itertools.chain([first], blocks))


class _Splitter:
    """Cuts blocks where documents end.

    A block is searched as a whole, because an object for every line costs more than the rest of the
    work. Where a document begins is worked out only if it is rejected.
    """

    def __init__(self, offset: int, rule: DocumentRule) -> None:
        self._gap = _GAPS[rule]
        self._end = _ENDS[rule]
        self._buffer = b""  # what is not yet known to be a whole document
        self._offset = offset  # of the buffer
        self._line = 1
        self._too_long: Rejected | None = None  # what the buffer continues

    def split(self, blocks: Iterator[bytes]) -> Iterator[str | Rejected]:
        """Yield the documents."""
        for block in blocks:
            # White space at the end of the buffer may be the beginning of a gap.
            searched = len(self._buffer.rstrip(_SPACES))
            self._buffer += block
            begin = 0
            for gap in self._gap.finditer(self._buffer, searched):
                if gap.end() == len(self._buffer):
                    break
                yield from self._document(begin, gap.start())
                begin = gap.end()
            self._forget(begin)
            self._forget_useless()
        yield from self._document(0, len(self._buffer))

    def _document(self, begin: int, end: int) -> Iterator[str | Rejected]:
        data = self._buffer[begin:end]
        if self._too_long is not None:
            yield self._too_long
            self._too_long = None
        elif data and not data.isspace():
            yield self._text(data, begin)

    def _text(self, data: bytes, begin: int) -> str | Rejected:
        if _is_too_long(data):
            return self._reject_long(begin)
        try:
            return decode(data)
        except DocumentError as error:
            return self._reject(error.reason, error.detail, begin)

    def _forget(self, end: int, instead: bytes = b"") -> None:
        self._line += self._buffer.count(b"\n", 0, end) - instead.count(b"\n")
        self._offset += end - len(instead)
        self._buffer = instead + self._buffer[end:]

    def _forget_useless(self) -> None:
        """Discard blank lines and the text of a document that is too long, to bound the memory."""
        if self._too_long is None and _is_too_long(self._buffer):
            self._too_long = self._reject_long(0)
        if self._too_long is not None or self._buffer.isspace():
            # Of the white space at the end, one line end is enough.
            tail = self._buffer[len(self._buffer.rstrip(_SPACES)) :]
            self._forget(len(self._buffer), b"\n" if b"\n" in tail else b"")

    def _reject_long(self, begin: int) -> Rejected:
        limit = f"over {MAX_DOCUMENT_BYTES // MEBIBYTE} MiB; {self._end}"
        return self._reject(DropReason.TOO_LONG, limit, begin)

    def _reject(self, reason: DropReason, detail: str, begin: int) -> Rejected:
        # How much of the white space before it was discarded depends on the blocks.
        first = _NO_SPACE.search(self._buffer, begin)
        begin = first.start() if first else begin
        line = self._line + self._buffer.count(b"\n", 0, begin)
        return Rejected(reason, detail, self._offset + begin, line)


def _is_too_long(data: bytes) -> bool:
    # White space around it does not count, because how much of it is there depends on blocks.
    return len(data) > MAX_DOCUMENT_BYTES and len(data.strip(_SPACES)) > MAX_DOCUMENT_BYTES
