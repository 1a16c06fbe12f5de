"""Bytes and strings as they were found to text that can be used, or the reason why not."""

from __future__ import annotations

from corpus.text.drops import DropReason
from pipeline_config.unquoted import fault


class DocumentError(Exception):
    """A document cannot be used; the rest of the file can."""

    def __init__(self, reason: DropReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


def decode(data: bytes) -> str:
    """Return a document's text.

    :raises DocumentError: it is no UTF-8, or has a NUL.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DocumentError(DropReason.INVALID_UTF8, fault(error)) from None
    return refuse_nul(text)


def refuse_nul(text: str) -> str:
    """Return the text.

    :raises DocumentError: it has a NUL.
    """
    if "\0" in text:
        detail = f"after {text.index(chr(0))} characters"
        raise DocumentError(DropReason.NUL_CHARACTER, detail)
    return text


def refuse_surrogates(text: str, shown: str) -> str:
    """Return the text of a field.

    :param shown: what messages call it.
    :raises DocumentError: it has one half of a surrogate pair, which is no character.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        detail = f"the field {shown} has half a surrogate pair after {error.start} characters"
        raise DocumentError(DropReason.LONE_SURROGATE, detail) from None
    return text
