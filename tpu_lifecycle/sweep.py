"""Deletes TPUs and waits until each is confirmed gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from tpu_lifecycle.backend import (
    TpuBackend,
    TpuError,
    TpuInvalidRequestError,
    TpuName,
    TpuState,
    TpuUnavailableError,
)
from tpu_lifecycle.log import Log

MAX_PAUSE_SECONDS = 8.0

_log = logging.getLogger(__name__)


@dataclass
class Sweeper:
    """Deletes by name, confirms by looking. Durations are seconds.

    :param pause: between the first two looks; doubles up to ``MAX_PAUSE_SECONDS``.
    :param reissue: after which a deletion that got stuck is asked for again.
    :param timeout: after which :meth:`delete` gives up.
    """

    backend: TpuBackend
    pause: float = 0.5
    reissue: float = 60.0
    timeout: float = 900.0
    log: Log = field(default_factory=lambda: _log)
    sleep: Callable[[float], None] = time.sleep

    def delete(self, names: Iterable[TpuName]) -> dict[TpuName, TpuState]:
        """Delete and confirm.

        :returns: of every TPU that was there, its state with the node, if it was seen.
        :raises TpuError: some could not be deleted or confirmed; all others are gone. Call again.
        """
        waiting = sorted(set(names))
        asked: dict[TpuName, float] = {}
        seen: dict[TpuName, TpuState] = {}
        deadline = time.monotonic() + self.timeout
        pause = self.pause
        while True:
            results = {name: self._push(name, asked, seen) for name in waiting}
            waiting = [name for name, is_gone in results.items() if is_gone is not True]
            if not waiting:
                return seen
            failed = {name: e for name, e in results.items() if isinstance(e, TpuError)}
            if len(failed) == len(waiting) and not any(e.retryable for e in failed.values()):
                raise next(iter(failed.values()))
            if time.monotonic() > deadline:
                raise TpuUnavailableError(self._left(waiting, seen, failed))
            self.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def find(
        self, zones: Iterable[str], labels: Mapping[str, str]
    ) -> tuple[list[TpuState], list[TpuError]]:
        """Return everything in the zones that carries the labels, and what went wrong."""
        found: list[TpuState] = []
        problems: list[TpuError] = []
        for zone in zones:
            try:
                found += self.backend.list_zone(zone, labels)
            except TpuInvalidRequestError as error:
                self.log.warning("Nothing can be in zone %s: %s", zone, error)
            except TpuError as error:
                self.log.warning("Cannot look into zone %s: %s", zone, error)
                problems.append(error)
        return found, problems

    def _push(
        self, name: TpuName, asked: dict[TpuName, float], seen: dict[TpuName, TpuState]
    ) -> bool | TpuError:
        """Bring one deletion forward; True when it is gone, an error when it cannot be asked."""
        try:
            state = self.backend.describe(name)
            if not state.exists:
                return True
            if name not in seen:
                self.log.info("Deleting %s (%s)", name, state.describe())
            if name not in seen or state.node_created:
                seen[name] = state
            if self._should_ask(state, asked.get(name)):
                self.backend.delete(name)
                asked[name] = time.monotonic()
        except TpuInvalidRequestError as error:
            self.log.warning("Nothing can be named so: %s", error)
            return True
        except TpuError as error:
            self.log.warning("%s", error)
            return error
        return False

    def _should_ask(self, state: TpuState, asked: float | None) -> bool:
        # The service wants no forced deletion while it is still suspending by itself.
        if state.queued_resource == "SUSPENDING":
            return False
        return asked is None or time.monotonic() - asked > self.reissue

    def _left(
        self,
        waiting: list[TpuName],
        seen: Mapping[TpuName, TpuState],
        failed: Mapping[TpuName, TpuError],
    ) -> str:
        parts = [
            f"{name} ({failed.get(name) or (seen[name].describe() if name in seen else 'unknown')})"
            for name in waiting
        ]
        return (
            f"Not confirmed gone after {self.timeout:.0f} s: {'; '.join(parts)}. The task tries "
            "again, and the tpu_reaper DAG deletes it too."
        )
