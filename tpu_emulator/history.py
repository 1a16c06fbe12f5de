"""Earlier states of nodes and queued resources: for lists that lag, for bills, for assertions."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from typing import Any

from tpu_emulator.messages import NodeState, QueueState

Query = Callable[..., list[sqlite3.Row]]
MAX_LAG_SECONDS = 600.0
"""How far back the bodies of all resources are known."""
GONE = "GONE"
"""The state after the last one."""


class History:
    """The record of earlier states, written in the same transaction as every change."""

    def __init__(self, query: Query) -> None:
        """Takes the function that runs a statement on the database."""
        self._query = query

    def note_body(self, name: str, collection: str, parent: str) -> None:
        """Stores the body of a resource before it changes; NULL when it does not exist yet."""
        now = time.time()
        self._query(
            "INSERT INTO changes (at, name, collection, parent, before) "
            "VALUES (?, ?, ?, ?, (SELECT body FROM resources WHERE name = ?))",
            now, name, collection, parent, name,
        )  # fmt: skip
        self._query("DELETE FROM changes WHERE at < ?", now - MAX_LAG_SECONDS)

    def note_state(self, name: str, message: Any | None) -> None:
        """Records the state of a resource if it is a new one; None for a resource that is gone."""
        rows = self._query(
            "SELECT life, state FROM history WHERE name = ? ORDER BY id DESC LIMIT 1", name
        )
        last = (rows[0]["life"], rows[0]["state"]) if rows else (0, GONE)
        current = (last[0], GONE) if message is None else _state(message)
        if current != last:
            self._query(
                "INSERT INTO history (at, name, life, state) VALUES (?, ?, ?, ?)",
                time.time(), name, *current,
            )  # fmt: skip

    def bodies_at(self, when: float, collection: str, parent: str) -> dict[str, bytes]:
        """The resources of a parent as they were at a time within `MAX_LAG_SECONDS`."""
        bodies = {
            row["name"]: row["body"]
            for row in self._query(
                "SELECT name, body FROM resources WHERE collection = ? AND parent = ?",
                collection, parent,
            )
        }  # fmt: skip
        for row in self._query(
            "SELECT name, before FROM changes WHERE collection = ? AND parent = ? AND at > ? "
            "ORDER BY id DESC",
            collection, parent, when,
        ):  # fmt: skip
            if row["before"] is None:
                bodies.pop(row["name"], None)
            else:
                bodies[row["name"]] = row["before"]
        return bodies

    def bodies_since(self, when: float, collection: str, parent: str) -> dict[str, bytes]:
        """The last known bodies of resources that a parent has, or had at any time since `when`.

        Args:
            when: epoch seconds, within `MAX_LAG_SECONDS`.
            collection: of the resources.
            parent: of the resources.
        """
        changed = self._query(
            "SELECT name, before AS body FROM changes WHERE collection = ? AND parent = ? "
            "AND at > ? AND before IS NOT NULL ORDER BY id",
            collection, parent, when,
        )  # fmt: skip
        present = self._query(
            "SELECT name, body FROM resources WHERE collection = ? AND parent = ?",
            collection, parent,
        )  # fmt: skip
        return {row["name"]: row["body"] for row in (*changed, *present)}

    def states(self, name: str = "") -> list[dict[str, Any]]:
        """Every state change of a resource, or of all, oldest first: at, name, life, state."""
        return [
            dict(row)
            for row in self._query(
                "SELECT at, name, life, state FROM history WHERE ? IN ('', name) ORDER BY id", name
            )
        ]

    def reached(self, name: str, life: int, state: str) -> float | None:
        """When a node was first in a state (epoch seconds); `life` tells equal names apart."""
        rows = self._query(
            "SELECT at FROM history WHERE name = ? AND life = ? AND state = ? ORDER BY id LIMIT 1",
            name, life, state,
        )  # fmt: skip
        return float(rows[0]["at"]) if rows else None


def _state(message: Any) -> tuple[int, str]:
    if hasattr(message.state, "state"):
        return 0, QueueState(message.state.state).name
    return message.id, NodeState(message.state).name
