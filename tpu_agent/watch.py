"""Watches for every reason for which the agent must stop."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Self

from pipeline_store import uris
from pipeline_store.formats import Attempt, FormatError
from tpu_agent import metadata
from tpu_agent.config import AgentConfig
from tpu_agent.store import StoreUnavailableError, store_call

TICK_SECONDS = 0.1

_log = logging.getLogger(__name__)


class StopKind(Enum):
    """What a stop means for the job that runs."""

    REVOKED = "revoked"
    """The TPU is released or another attempt's: stop and report nothing."""
    EXPIRED = "expired"
    """The TPU's time is over: stop and report it."""
    SHUTDOWN = "shutdown"
    """The VM goes away: let the job save, and report its own result."""


@dataclass(frozen=True)
class Stop:
    """Why the agent stops."""

    kind: StopKind
    reason: str
    is_doubtful: bool = False
    """A single poll may have been wrong, such as one of a file that is being replaced."""


class Watch:
    """Watches for reasons to stop, which are known at any moment without blocking.

    Inside its ``with`` block a thread polls the store and the metadata server, so that signals,
    deadlines and the end of the TPU's time are noticed even while the store does not answer.
    """

    def __init__(
        self, config: AgentConfig, notice: Callable[[], str | None] = metadata.notice
    ) -> None:
        self._config = config
        self._notice = notice
        self._signal: str | None = None
        self._seen: Stop | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Not joined: it may be waiting for the store, and it changes nothing.
        self._ended.set()

    def shut_down(self, signal_name: str) -> None:
        """Record a signal; safe to call from a signal handler, so it only sets a field."""
        self._signal = signal_name

    def stop(self) -> Stop | None:
        """Return why to stop, or None. A store that does not answer is no reason."""
        if self._signal:
            return Stop(StopKind.SHUTDOWN, f"{self._signal} received")
        if self._seen:
            return self._seen
        if datetime.now(UTC) >= self._config.expires_at:
            return Stop(StopKind.EXPIRED, f"this TPU expired at {self._config.expires_at}")
        return None

    def wait(self, seconds: float) -> Stop | None:
        """Sleep, but return at once when there is a reason to stop."""
        end = time.monotonic() + seconds
        while not (stop := self.stop()) and time.monotonic() < end:
            time.sleep(TICK_SECONDS)
        return stop

    def last_look(self, seconds: float) -> Stop | None:
        """Wait for a reason to stop, and ask the platform itself before returning None.

        For a job that has just failed: the platform's notice may be newer than the last poll.
        """
        if stop := self.wait(seconds):
            return stop
        notice = self._notice()
        return Stop(StopKind.SHUTDOWN, notice) if notice else None

    def permission(self) -> Stop | None:
        """Return None only when the store itself has confirmed that this attempt may run.

        Unlike for :meth:`stop`, silence is not consent here: nothing may start before the tombstone
        was checked.
        """
        while not (stop := self.stop()):
            try:
                return self._look()
            except StoreUnavailableError as error:
                _log.warning("%s; nothing is started before it succeeds", error)
                self.wait(self._config.poll_interval)
        return stop

    def _run(self) -> None:
        doubtful: Stop | None = None
        while not (self._seen or self._ended.wait(self._config.poll_interval)):
            try:
                found = self._look()
                if found is None or not found.is_doubtful or doubtful is not None:
                    self._seen = found
                doubtful = found
            except StoreUnavailableError as error:
                _log.warning("%s; the agent goes on and asks again", error)
            except Exception:  # noqa: BLE001 - the watch must not end silently
                _log.exception("looking for reasons to stop failed; the agent asks again")

    def _look(self) -> Stop | None:
        if notice := self._notice():
            return Stop(StopKind.SHUTDOWN, notice)
        return self._revocation()

    def _revocation(self) -> Stop | None:
        config = self._config
        record = config.mailbox.record
        try:
            with store_call(f"looking for {config.released_uri} and {record}"):
                if uris.exists(config.released_uri):
                    released = f"{config.released_uri} exists: the TPU is released"
                    return Stop(StopKind.REVOKED, released)
                attempt = Attempt.load_or_none(record)
        except FormatError as error:
            return Stop(StopKind.REVOKED, str(error), is_doubtful=True)
        if attempt is None:
            missing = f"{record} does not exist: this TPU is nobody's"
            return Stop(StopKind.REVOKED, missing, is_doubtful=True)
        if attempt.token != config.token:
            other = f"{record} belongs to token {attempt.token}, this agent to {config.token}"
            return Stop(StopKind.REVOKED, other)
        return None
