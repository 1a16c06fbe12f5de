"""Limits wrong passwords, counted in Airflow's database over all processes of the API server.

Each attempt is a row of the audit log, written before the password is checked and deleted when it
was right. Concurrent attempts are limited like consecutive ones: whichever is written last sees all
others.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from datetime import UTC, datetime, timedelta

from airflow.models.log import Log
from airflow.utils.session import create_session
from sqlalchemy import delete, func, select

EVENT = "login_failed"
MOST_FAILURES = 10
"""Wrong passwords of one account within :data:`WINDOW` after which further ones are refused."""
WINDOW = timedelta(minutes=1)
_COUNTERS = 64
"""Counters shared by all names without an account, so that a flood of them writes few rows."""


class TooManyFailuresError(Exception):
    """Too many recent wrong passwords for an account.

    :ivar seconds: until the next attempt is allowed.
    """

    def __init__(self, seconds: int) -> None:
        super().__init__(
            f"{MOST_FAILURES} wrong passwords within {WINDOW.seconds} s are the most that is "
            f"looked at. Try again in {seconds} s."
        )
        self.seconds = seconds


def begin(name: str, *, is_known: bool) -> int:
    """Count an attempt as failed; return its number, for :func:`succeeded`.

    :param name: name of the account, the same however a person spells it.
    :param is_known: whether the account exists. If not, the name is not stored: people type
        passwords into the wrong field.
    :raises TooManyFailuresError: the account had too many; this attempt does not count.
    """
    counter = _counter(name.casefold().encode(errors="replace"), is_known=is_known)
    with create_session(scoped=False) as session:
        line = Log(EVENT, owner=name if is_known else None, extra=counter)
        session.add(line)
        session.commit()
        number, now = line.id, datetime.now(UTC)
        since = (Log.event == EVENT, Log.extra == counter, Log.dttm > now - WINDOW)
        count, first = session.execute(select(func.count(), func.min(Log.dttm)).where(*since)).one()
        if count <= MOST_FAILURES:
            return number
        session.execute(delete(Log).where(Log.id == number))
    raise TooManyFailuresError(_seconds(first or now, now))


def succeeded(number: int) -> None:
    """Delete an attempt from the count: its password was right."""
    with create_session(scoped=False) as session:
        session.execute(delete(Log).where(Log.id == number))


def _counter(name: bytes, *, is_known: bool) -> str:
    """Return the counter of a name; other names cannot use up the counter of an account."""
    if is_known:
        return f"account {hashlib.sha256(name).hexdigest()[:32]}"
    return str(zlib.crc32(name) % _COUNTERS)


def _seconds(first: datetime, now: datetime) -> int:
    return max(1, math.ceil((first + WINDOW - now).total_seconds()))
