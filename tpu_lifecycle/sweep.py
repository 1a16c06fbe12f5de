"""Deletes TPUs and waits until each is confirmed gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from tpu_lifecycle.attempts import LASTING_REFUSALS
from tpu_lifecycle.backend import (
    TpuBackend,
    TpuError,
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

    def delete(
        self,
        names: Iterable[TpuName],
        *,
        is_ours: Callable[[TpuState], bool] = lambda state: True,
        denied: AbstractSet[TpuName] = frozenset(),
    ) -> dict[TpuName, TpuState]:
        """Delete and confirm. Only the service's word that there is no such TPU means gone.

        :param is_ours: whether what has the name may be deleted; else it is left alone, and the
            name counts as gone, as it cannot be ours as well.
        :param denied: names whose only create call was answered with a refusal. They have no TPU,
            so that it is enough when looking is refused like asking was: the zone may not exist,
            and a teardown that insisted on looking there would fail for ever.
        :returns: of every TPU that was there, its state with the node, if it was seen.
        :raises TpuError: some could not be deleted or confirmed; all others are gone. Call again.
        """
        waiting = sorted(set(names))
        asked: dict[TpuName, float] = {}
        seen: dict[TpuName, TpuState] = {}
        deadline = time.monotonic() + self.timeout
        pause = self.pause
        while True:
            results: dict[TpuName, bool | TpuError] = {}
            for name in waiting:
                found = self._push(name, asked, seen, is_ours)
                is_refused = isinstance(found, LASTING_REFUSALS)
                results[name] = found if not (is_refused and name in denied) else True
            waiting = [name for name, is_gone in results.items() if is_gone is not True]
            if not waiting:
                return seen
            failed = {name: e for name, e in results.items() if isinstance(e, TpuError)}
            if len(failed) == len(waiting) and not any(e.retryable for e in failed.values()):
                first = next(iter(failed.values()))
                raise type(first)(self._left(waiting, seen, failed))
            if time.monotonic() > deadline:
                raise TpuUnavailableError(self._left(waiting, seen, failed))
            self.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def find(
        self, zones: Iterable[str], labels: Mapping[str, str]
    ) -> tuple[list[TpuState], dict[str, TpuError]]:
        """Return everything in the zones that carries the labels, and what went wrong by zone."""
        found: list[TpuState] = []
        problems: dict[str, TpuError] = {}
        for zone in zones:
            try:
                found += self.backend.list_zone(zone, labels)
            except TpuError as error:
                self.log.warning("Cannot look into zone %s: %s", zone, error)
                problems[zone] = error
        return found, problems

    def _push(
        self,
        name: TpuName,
        asked: dict[TpuName, float],
        seen: dict[TpuName, TpuState],
        is_ours: Callable[[TpuState], bool],
    ) -> bool | TpuError:
        """Bring one deletion forward; True when it is gone, an error when it cannot be asked."""
        try:
            state = self.backend.describe(name)
            if not state.exists:
                return True
            if not is_ours(state):
                self.log.error(
                    "%s is not ours (labels %s): left alone. Look whose it is.",
                    name,
                    dict(state.labels),
                )
                return True
            if name not in seen:
                self.log.info("Deleting %s (%s)", name, state.describe())
            if name not in seen or state.node_created:
                seen[name] = state
            if self._should_ask(state, asked.get(name)):
                self.backend.delete(name)
                asked[name] = time.monotonic()
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
            f"Not confirmed gone: {'; '.join(parts)}. The task tries "
            "again, and the tpu_reaper DAG deletes it too."
        )
