"""Pages of list answers: the token is the last name of the previous page, encoded."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from tpu_emulator.errors import invalid_argument
from tpu_emulator.store import Table

_DEFAULT_SIZE = 100
_MAX_SIZE = 1000


def page(table: Table, parent: str, request: Any) -> tuple[list[Any], str]:
    """The page of a stored table that the request asks for, and the token of the next one.

    Raises:
        ApiError: INVALID_ARGUMENT for a negative size or a token that was not issued here.
    """
    size = _size(request)
    found = table.page(parent, _after(request.page_token), size + 1)
    return _cut(found, size)


def page_of_list(items: list[Any], request: Any) -> tuple[list[Any], str]:
    """As `page`, for a fixed list of messages that is sorted by name.

    Raises:
        ApiError: as `page`.
    """
    after = _after(request.page_token)
    return _cut([item for item in items if item.name > after], _size(request))


def _cut(found: list[Any], size: int) -> tuple[list[Any], str]:
    if len(found) <= size:
        return found, ""
    return found[:size], base64.urlsafe_b64encode(found[size - 1].name.encode()).decode()


def _size(request: Any) -> int:
    if request.page_size < 0:
        raise invalid_argument(f"page_size {request.page_size}: must not be negative")
    return min(request.page_size or _DEFAULT_SIZE, _MAX_SIZE)


def _after(token: str) -> str:
    try:
        return base64.b64decode(token.encode(), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise invalid_argument(f"Invalid page_token {token!r}") from None
