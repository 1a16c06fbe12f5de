"""Faults that the admin service arms and the API methods meet.

Every fault applies a limited number of times, survives a restart of the emulator, and is chosen
by method or zone, never by magic resource names. A new kind of fault is a constant here, an admin
command that arms it, and one `take` at the place that it disturbs.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from tpu_emulator.store import Store

_log = logging.getLogger(__name__)

FAIL = "fail"
"""The call answers with an error and has no effect. Scope: method. Details: code, message."""
DELAY = "delay"
"""The reply, or with `commit_late` also the effect, comes late. Scope: method. Details: seconds."""
LOSE_REPLY = "lose-reply"
"""The call takes effect and answers UNAVAILABLE. Scope: method."""
STOCKOUT = "stockout"
"""A create finds no capacity. Scope: zone. Details: shape."""

ANY = "*"


class Faults:
    """The armed faults, kept in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def arm(self, kind: str, scope: str, count: int, **details: Any) -> None:
        """Makes the next `count` matching calls meet this fault; `scope` may be `*`."""
        self._store.query(
            "INSERT INTO faults (kind, scope, remaining, details) VALUES (?, ?, ?, ?)",
            kind, scope, count, json.dumps(details),
        )  # fmt: skip

    def take(self, kind: str, scope: str) -> dict[str, Any] | None:
        """The details of the oldest armed fault of this kind and scope, used up once, or None."""
        with self._store.transaction():
            rows = self._store.query(
                "SELECT * FROM faults WHERE kind = ? AND scope IN (?, ?) ORDER BY id LIMIT 1",
                kind, scope, ANY,
            )  # fmt: skip
            if not rows:
                return None
            if rows[0]["remaining"] > 1:
                self._store.query(
                    "UPDATE faults SET remaining = remaining - 1 WHERE id = ?", rows[0]["id"]
                )
            else:
                self._store.query("DELETE FROM faults WHERE id = ?", rows[0]["id"])
        _log.info("fault %s on %s: %s", kind, scope, rows[0]["details"])
        return json.loads(rows[0]["details"])

    def armed(self) -> list[dict[str, Any]]:
        """Every fault that has not been used up, the oldest first."""
        return [
            {**row, "details": json.loads(row["details"])}
            for row in map(dict, self._store.query("SELECT * FROM faults ORDER BY id"))
        ]

    def clear(self) -> int:
        """Disarms all faults and returns how many there were."""
        return len(self._store.query("DELETE FROM faults RETURNING id"))
