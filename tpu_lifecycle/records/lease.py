"""The lease of a TPU: a sign in its mailbox that somebody who would give it back still looks.

A TPU VM whose lease is not renewed for ``tpu.lease_timeout_seconds``, and whose job makes no
progress, deletes its own TPU. It looks at changes of the file, by its own clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime

from pipeline_store.formats import FormatError, Lease
from tpu_lifecycle.records.attempts import AttemptRecord

MAX_INTERVAL_SECONDS = 30.0
RENEWALS_PER_TIMEOUT = 10


@dataclass
class LeaseKeeper:
    """Renews one attempt's lease, however often it is asked to.

    Two may keep the same lease for a while, an old trigger and a new one: what they write still
    changes, and nobody reads more out of it.

    :param timeout: ``tpu.lease_timeout_seconds``.
    """

    record: AttemptRecord
    timeout: float
    _sequence: int | None = field(default=None, init=False)
    _renewed: float = field(default=0.0, init=False)

    def renew(self) -> None:
        """Renew the lease unless that was done a moment ago."""
        now = time.monotonic()
        interval = min(MAX_INTERVAL_SECONDS, self.timeout / RENEWALS_PER_TIMEOUT)
        if self._sequence is not None and now - self._renewed < interval:
            return
        uri = self.record.layout.lease
        if self._sequence is None:
            self._sequence = _present(uri)
        self._sequence += 1
        Lease(
            token=self.record.attempt.token, sequence=self._sequence, renewed=datetime.now(UTC)
        ).write(uri)
        self._renewed = now


def _present(uri: str) -> int:
    try:
        found = Lease.load_or_none(uri)
    except FormatError:
        return 0  # what counts is that the file changes
    return found.sequence if found else 0
