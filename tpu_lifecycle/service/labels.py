"""Labels of a node: whose it is and until when. They identify; they never carry status."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from pipeline_store.formats import Attempt, Reservation

OWNER = "owner"
DAG = "dag"
RUN_KEY = "run-key"
GENERATION = "generation"
ATTEMPT = "attempt"
EXPIRES_AT = "expires-at"
INSTALLATION = "installation"

_MAX_LENGTH = 63


def label_value(text: str) -> str:
    """Return the text as a label value: only ``[a-z0-9_-]``, at most 63 characters."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:_MAX_LENGTH]


def owner_label(owner: str) -> dict[str, str]:
    """Return the label of all TPUs of an owner, in all of the owner's installations."""
    return {OWNER: label_value(owner)}


def run_labels(reservation: Reservation) -> dict[str, str]:
    """Return the labels that all TPUs of a run carry, of every generation.

    A run of another installation may have the same; see :func:`is_of`.
    """
    return owner_label(reservation.owner) | {RUN_KEY: reservation.run_key}


def is_of(reservation: Reservation, labels: Mapping[str, str]) -> bool:
    """Return whether labels are those of a reservation's run in its own installation."""
    is_of_run = run_labels(reservation).items() <= labels.items()
    return is_of_run and labels.get(INSTALLATION) == reservation.installation


def attempt_labels(reservation: Reservation, attempt: Attempt) -> dict[str, str]:
    """Return the labels of one attempt's TPU."""
    installation = {INSTALLATION: reservation.installation} if reservation.installation else {}
    return (
        run_labels(reservation)
        | installation
        | {
            DAG: label_value(reservation.dag_id),
            GENERATION: str(attempt.generation),
            ATTEMPT: str(attempt.attempt),
            EXPIRES_AT: str(int(reservation.expires_at.timestamp())),
        }
    )


@dataclass(frozen=True)
class TpuLabels:
    """The parsed labels of one of our TPUs."""

    run_key: str
    generation: int
    attempt: int
    expires_at: datetime

    @classmethod
    def parse(cls, labels: Mapping[str, str]) -> TpuLabels:
        """Read labels.

        :raises ValueError: a label is missing or not a number.
        """
        try:
            return cls(
                run_key=labels[RUN_KEY],
                generation=int(labels[GENERATION]),
                attempt=int(labels[ATTEMPT]),
                expires_at=datetime.fromtimestamp(int(labels[EXPIRES_AT]), UTC),
            )
        except (KeyError, ValueError, OverflowError, OSError) as error:
            raise ValueError(
                f"labels {dict(labels)} are not as we write them: {error!r}"
            ) from error
