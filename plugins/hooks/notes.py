"""XComs between a run's tasks and the listener of its state (``plugins/run_notes.py``).

Tasks cannot set the note of their run, and cannot ask who ended it or which runs its backfill has.
XComs carry all three. Anyone who may trigger runs may also change XComs, so they never decide what
is read, run or rented: they hold only text for people, and runs to wait for.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

NOTE, ENDED_BY, BACKFILL = "run_note", "ended_by", "backfill"
"""XCom keys: the text of the note; who ended the run and in which state; the backfill's runs."""

FIRST_TASK, LAST_TASK = "validate", "promotion.release"
"""Task ids under which the listener leaves its XComs. A task's XComs are deleted when it begins, so
those for the first task are under the last one's id, and vice versa."""

MAX_REASON = 700
"""Most characters of a reason in a note; Airflow stores a thousand for the whole note."""

MAX_PERSON = 100
"""Most characters of a person's name that are shown."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class BackfillList:
    """The runs of a backfill, as Airflow lists them.

    :ivar backfill_id: Airflow's number.
    :ivar runs: partition by run id.
    :ivar is_backwards: whether the newest partition begins.
    """

    backfill_id: int
    runs: dict[str, str] = field(default_factory=dict)
    is_backwards: bool = False

    @property
    def name(self) -> str:
        """Return its name in the store, which adds a hash: a new database restarts the numbers."""
        listed = "\n".join(sorted(self.runs)).encode()
        return f"{self.backfill_id}-{hashlib.sha256(listed).hexdigest()[:12]}"


def leave_note(context: Context, text: str) -> None:
    """Leave the text of the run's note, which is shown when the run has ended.

    A run does not depend on its note: a failure is only logged.
    """
    try:  # later steps, such as releasing the lineage, must not fail with it
        context["ti"].xcom_push(key=NOTE, value=text)
    except Exception as error:  # noqa: BLE001
        log.warning("The note of the run could not be left: %r", error)


def about_run(partition: str, lineage_id: str) -> str:
    """Return the part of every note that names the run's partition and lineage."""
    about = f"lineage {lineage_id}"
    return f"Partition {partition}, {about}" if partition else about.capitalize()


def short_reason(reason: str) -> str:
    """Return a reason, cut to leave room for the rest of the note."""
    return reason if len(reason) <= MAX_REASON else f"{reason[: MAX_REASON - 2]} …"


def ended_by(context: Context) -> str | None:
    """Return who ended the run by hand; None: nobody, or it is not known."""
    found = _pull(context, FIRST_TASK, ENDED_BY)
    if not isinstance(found, dict) or "name" not in found:
        return None
    return " ".join(str(found["name"]).split())[:MAX_PERSON]


def backfill_of(context: Context) -> BackfillList | None:
    """Return the backfill that a run belongs to; None: none, or it is not known."""
    if context["dag_run"].run_type != "backfill":
        return None
    found = _pull(context, LAST_TASK, BACKFILL)
    try:
        runs = {str(run_id): str(partition) for run_id, partition in found["runs"].items()}
        return BackfillList(int(found["backfill_id"]), runs, found["is_backwards"] is True)
    except (TypeError, KeyError, ValueError, AttributeError):
        log.warning("Airflow does not say which runs the backfill has: %r", found)
        return None


def _pull(context: Context, task_id: str, key: str) -> Any:
    try:
        return context["ti"].xcom_pull(task_ids=task_id, key=key)
    except Exception as error:  # noqa: BLE001 - as above
        log.warning("Airflow does not say what %s has left as %s: %r", task_id, key, error)
        return None
