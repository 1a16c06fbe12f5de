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
"""Outcomes of an event: the run has the lineage, waited too long, or something is damaged."""

MAX_ERRORS = 5
"""Looks in a row that may fail because a file is damaged before the task is told. A store or an
Airflow that is away is waited for."""

# Threads of their own, so that a store that hangs holds up neither the event loop nor the triggers
# that watch a TPU.
_LOOKS = PatientThreads(16, "lineage-look")
_KILLS = PatientThreads(4, "lineage-kill")


class LineageTrigger(SettledTrigger):
    """Claims a run's lineage again and again until it has it.

    Whoever has the lineage, and who comes first, is in the task's log. The event is a dictionary:
    ``outcome`` and ``reason``.

    :param store_uri: root of the store.
    :param run_uri: folder of the run that waits.
    :param deadline: epoch seconds after which the trigger fires by itself; earlier than the
        timeout of the deferral.
    :param poll_interval: seconds between two looks.
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
        """Look until the lineage is this run's, then fire once.

        A look that does not return is left behind. Should it claim the lineage after all, that is
        this run's, and void when the run has ended.
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
            # Spread out: a triggerer that starts takes all its triggers at the same moment.
            await asyncio.sleep(self.poll_interval * random.uniform(0.9, 1.1))  # noqa: S311

    async def on_kill(self) -> None:
        """Stop waiting: a person marked the task or cleared it.

        A newer try that waits leaves a new ticket with its next look. The lease is not given back,
        as it may be the newer try's; it is void when the run has ended.
        """
        await _KILLS.kill(self._withdraw)
        self.log.info("Task was ended by a person: it does not wait for the lineage any more")

    def _look(self) -> Standing:
        return LineageClaim.open(self.store_uri, self.run_uri).attempt()

    def _withdraw(self) -> None:
        LineageClaim.open(self.store_uri, self.run_uri).withdraw()
