"""The trigger that waits until a run may continue its lineage, holding no worker slot."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import TriggerEvent

from hooks.lineage import LineageClaim
from model_registry.errors import RegistryError
from model_registry.lease import Standing
from pipeline_store.formats import FormatError
from triggers.firing import SettledTrigger
from triggers.threads import PatientThreads

CLAIMED, DEADLINE, ERROR = "claimed", "deadline", "error"
"""Outcomes of an event: the run holds the lineage, waited too long, or a file is damaged."""

MAX_ERRORS = 5
"""Consecutive polls that may fail on a damaged file before the trigger fires with an error. If the
store or Airflow is unavailable, it keeps waiting."""

# Separate threads, so that a store that hangs holds up neither the event loop nor the triggers that
# watch a TPU.
_LOOKS = PatientThreads(16, "lineage-look")
_KILLS = PatientThreads(4, "lineage-kill")


class LineageTrigger(SettledTrigger):
    """A trigger that tries to claim a run's lineage until the run holds it.

    The task's log names the run that holds the lineage and the one that is next. The event is a
    dictionary with ``outcome`` and ``reason``.

    :param store_uri: root of the store.
    :param run_uri: folder of the run that waits.
    :param deadline: epoch seconds after which the trigger fires by itself; earlier than the
        timeout of the deferral.
    :param poll_interval: seconds between two polls.
    """

    def __init__(
        self, *, store_uri: str, run_uri: str, deadline: float, poll_interval: float
    ) -> None:
        super().__init__()
        self.store_uri = store_uri
        self.run_uri = run_uri
        self.deadline = deadline
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path that the triggerer imports, and the arguments."""
        return (
            "triggers.lineage.LineageTrigger",
            {
                "store_uri": self.store_uri,
                "run_uri": self.run_uri,
                "deadline": self.deadline,
                "poll_interval": self.poll_interval,
            },
        )

    async def events(self) -> AsyncIterator[TriggerEvent]:
        """Poll until this run holds the lineage, then fire once.

        A poll that does not return is abandoned. Should it claim the lineage after all, the lease
        is this run's, and void once the run has ended.
        """
        errors, shown = 0, ""
        while True:
            try:
                standing = await _LOOKS.look(self.deadline, self._look)
            except Exception as error:  # noqa: BLE001 - waiting costs nothing, so it goes on
                # CancelledError is no Exception: it passes, as on_kill needs it to.
                lasts = isinstance(error, RegistryError | FormatError)
                errors = errors + 1 if lasts else 0
                self.log.warning("The lineage could not be looked at: %r", error)
                if errors >= MAX_ERRORS:
                    yield TriggerEvent({"outcome": ERROR, "reason": str(error)})
                    return
                shown = shown or f"it could not be looked at: {error!r}"
            else:
                errors = 0
                text = standing.describe()
                if text != shown:
                    self.log.info("Lineage: %s", text)
                    shown = text
                if standing.is_held:
                    yield TriggerEvent({"outcome": CLAIMED, "reason": text})
                    return
            if time.time() >= self.deadline:
                yield TriggerEvent({"outcome": DEADLINE, "reason": shown})
                return
            # Jitter: a triggerer that starts begins all its triggers at the same moment.
            await asyncio.sleep(self.poll_interval * random.uniform(0.9, 1.1))  # noqa: S311

    async def on_kill(self) -> None:
        """Stop waiting: a person marked the task or cleared it.

        A newer try that waits leaves a new ticket with its next poll. The lease is not released, as
        it may be the newer try's; it is void once the run has ended.
        """
        await _KILLS.kill(self._withdraw)
        self.log.info("Task was ended by a person: it does not wait for the lineage any more")

    def _look(self) -> Standing:
        return LineageClaim.open(self.store_uri, self.run_uri).attempt()

    def _withdraw(self) -> None:
        LineageClaim.open(self.store_uri, self.run_uri).withdraw()
