"""Accidents to the whole stack, each of which happens once for all scenarios that wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from local.stack import parts, settings
from local.stack.breaking import Breaker

AIRFLOW = (
    parts.SCHEDULER,
    parts.TRIGGERER,
    parts.DAG_PROCESSOR,
    settings.API_SERVER,
)


def _kill(name: str, *, children: bool = False) -> Callable[[Breaker], None]:
    return lambda breaker: breaker.kill(name, children=children)


def _nothing(_: Breaker) -> None:
    """Do nothing."""


def _restart_emulator(breaker: Breaker) -> None:
    breaker.stop(parts.TPU_EMULATOR)
    breaker.start([parts.TPU_EMULATOR])


def _restart_postgres(breaker: Breaker) -> None:
    breaker.stop(parts.POSTGRES)
    breaker.start([parts.POSTGRES])


ACCIDENTS: Mapping[str, tuple[Callable[[Breaker], None], Callable[[Breaker], None]]] = {
    "triggerer-killed": (_kill(parts.TRIGGERER), _nothing),
    "triggerer-away": (
        lambda breaker: breaker.halt([parts.TRIGGERER]),
        lambda breaker: breaker.start([parts.TRIGGERER]),
    ),
    # With its workers, as some process managers do it.
    "scheduler-killed": (_kill(parts.SCHEDULER, children=True), _nothing),
    # As the kernel does it when memory runs out: workers live on, hold its database session, and
    # with it the locks of whatever it was just doing.
    "scheduler-alone": (_kill(parts.SCHEDULER), _nothing),
    # There and silent, as one that waits for a worker that hangs: it has to be found first.
    "scheduler-frozen": (lambda breaker: breaker.freeze(parts.SCHEDULER), _nothing),
    "api-server-killed": (_kill(settings.API_SERVER), _nothing),
    "postgres-restarted": (_restart_postgres, _nothing),
    "postgres-killed": (_kill(parts.POSTGRES), _nothing),
    "emulator-killed": (_kill(parts.TPU_EMULATOR), _nothing),
    "emulator-restarted": (_restart_emulator, _nothing),
    "airflow-dead": (
        lambda breaker: breaker.halt(AIRFLOW),
        lambda breaker: breaker.start(AIRFLOW),
    ),
}
"""By name: the accident, and the repair after all its scenarios are judged."""


class Accidents:
    """Triggers an accident when all scenarios that share it are ready for it."""

    def __init__(self, breaker: Breaker) -> None:
        self._breaker = breaker
        self._changed = threading.Condition()
        self._expected: dict[str, set[str]] = {}
        self._happened: set[str] = set()

    def expect(self, name: str, dag_ids: Iterable[str]) -> None:
        """Register the DAGs whose runs will wait for an accident."""
        self._expected[name] = set(dag_ids)
        self._happened.discard(name)

    def arrive(self, name: str, dag_id: str) -> None:
        """Wait for the other runs, and return when the accident has happened."""
        with self._changed:
            self._leave(name, dag_id)
            while name not in self._happened:
                self._changed.wait()

    def drop_out(self, name: str | None, dag_id: str) -> None:
        """Stop the others from waiting for this DAG's run; harmless after its arrival."""
        with self._changed:
            if name is not None:
                self._leave(name, dag_id)

    def repair(self, name: str) -> None:
        """Repair what the accident left broken, and wait until the whole stack is healthy.

        :raises StackError: it does not become healthy in time.
        """
        if name in self._happened:
            ACCIDENTS[name][1](self._breaker)
        self._breaker.wait_ready()

    def _leave(self, name: str, dag_id: str) -> None:
        waiting = self._expected.get(name, set())
        if dag_id not in waiting:
            return
        waiting.discard(dag_id)
        if waiting:
            return
        try:
            ACCIDENTS[name][0](self._breaker)
        finally:
            self._happened.add(name)
            self._changed.notify_all()
