"""Uploads hang reports, which are kept on this VM until then, and sees those of other hosts.

The thread here polls the store continually, so it also knows whether the store answers.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from pipeline_store import uris
from pipeline_store.formats import FormatError, HangReport
from tpu_agent.config import AgentConfig
from tpu_agent.state import JobFolder, remember
from tpu_agent.store import StoreUnavailableError, store_call

SLOW_SECONDS = 10.0
"""A request that takes longer counts as unanswered meanwhile."""


class Answered:
    """Record of sequential requests and their results; thread-safe.

    The store counts as away from the last answer before a failure to the next answer, because the
    exact time at which it went away is unknown.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._answered = clock()
        self._asked: float | None = None
        self._has_failed = False
        self._away = 0.0
        self.last_asked = self._answered
        """When the last answered request was sent."""

    def ask(self) -> None:
        """Record that a request is sent."""
        with self._lock:
            self._asked = self._clock()

    def answer(self) -> None:
        """Record that the request was answered."""
        with self._lock:
            self._away += self._open()
            self.last_asked = self._asked if self._asked is not None else self._clock()
            self._answered, self._asked, self._has_failed = self._clock(), None, False

    def fail(self) -> None:
        """Record that the request failed."""
        with self._lock:
            self._asked, self._has_failed = None, True

    def away(self) -> float:
        """Return for how many seconds the store was away so far; may also grow in hindsight."""
        with self._lock:
            return self._away + self._open()

    def _open(self) -> float:
        now = self._clock()
        is_slow = self._asked is not None and now - self._asked > SLOW_SECONDS
        return now - self._answered if self._has_failed or is_slow else 0.0


_NAME = re.compile(r"(\d+)\.(\d+)\.json")

_log = logging.getLogger(__name__)


class HangFiles:
    """The hang reports of one job. Inside its ``with`` block the store is polled continually.

    :ivar answered: whether the store answers.
    """

    def __init__(self, config: AgentConfig, job_id: str, folder: JobFolder) -> None:
        self.answered = Answered()
        self._config = config
        self._job_id = job_id
        self._folder = folder.hangs
        self._stored: frozenset[tuple[int, int]] = frozenset()
        self._lock = threading.Lock()
        self._now = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hang-files", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Not joined: it may be waiting for the store, and others upload the kept reports.
        self._ended.set()
        self._now.set()

    @property
    def newest(self) -> int:
        """Return the number of the newest hang that any host has reported; 0: none."""
        return max((number for number, _ in self._stored), default=0)

    def reported(self, number: int) -> int:
        """Return how many hosts have reported the hang of this number."""
        return sum(found == number for found, _ in self._stored)

    def keep(self, report: HangReport) -> None:
        """Keep a report here, and have it uploaded as soon as the store answers."""
        remember(report, str(self._folder / f"{report.number}.json"))
        self._now.set()

    def upload(self) -> None:
        """Upload the kept reports.

        :raises StoreUnavailableError: call again later.
        """
        with self._lock:
            for path in sorted(self._folder.glob("*.json")):
                try:
                    report = HangReport.load(str(path))
                except FormatError as error:
                    _log.warning("%s; it is set aside", error)
                    path.rename(Path(f"{path}.unreadable"))
                    continue
                uri = self._config.mailbox.hang(self._job_id, report.number, report.worker)
                with store_call(f"writing {uri}"):
                    report.create(uri)
                path.rename(Path(f"{path}.stored"))

    def _run(self) -> None:
        while not self._ended.is_set():
            self._now.clear()
            # A report that cannot be written does not show whether the store answers.
            self._survive(self.upload)
            if not self._survive(self._look):
                self.answered.fail()
            self._now.wait(self._config.poll_interval)

    @staticmethod
    def _survive(action: Callable[[], None]) -> bool:
        """Run an action and log its error; return whether it succeeded."""
        try:
            action()
        except StoreUnavailableError as error:
            _log.warning("%s; the agent tries again", error)
            return False
        except Exception:  # noqa: BLE001 - without this thread no job would count as hung any more
            _log.exception("reports of hangs failed; the agent tries again")
            return False
        return True

    def _look(self) -> None:
        mailbox = self._config.mailbox
        folder = uris.join(mailbox.hangs, self._job_id)
        self.answered.ask()
        with store_call(f"reading {mailbox.record} and listing {folder}"):
            # The record must exist; an empty listing alone does not prove that the store answers.
            uris.read(mailbox.record)
            found = [_NAME.fullmatch(uri.rpartition("/")[2]) for uri in uris.list_files(folder)]
        self._stored = frozenset((int(name[1]), int(name[2])) for name in found if name)
        self.answered.answer()
