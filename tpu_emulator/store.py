"""The emulator's memory: one SQLite file that survives restarts and kills of the process."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpu_emulator import messages, schema
from tpu_emulator.history import History

_WORKER_FLAGS = ("preempted", "maintenance", "dead")


class Table:
    """Protobuf messages of one collection by resource name, ordered by name in their parent."""

    def __init__(
        self, store: Store, collection: str, message: Any, history: History | None = None
    ) -> None:
        """Takes the class of its messages, and the history of their earlier states."""
        self._store = store
        self._collection = collection
        self._message = message
        self._history = history

    def get(self, name: str) -> Any | None:
        """The message, or None."""
        rows = self._store.query(
            "SELECT body FROM resources WHERE name = ? AND collection = ?", name, self._collection
        )
        return self._message.FromString(rows[0]["body"]) if rows else None

    def put(self, parent: str, message: Any) -> None:
        """Inserts or replaces the message under its own `name`."""
        with self._change(message.name, parent, message):
            self._store.query(
                "INSERT OR REPLACE INTO resources VALUES (?, ?, ?, ?)",
                message.name, self._collection, parent, message.SerializeToString(),
            )  # fmt: skip

    def update(self, message: Any) -> None:
        """Replaces the body of an existing message; does nothing when it is gone."""
        with self._store.transaction():
            for parent in self._parents(message.name):
                self.put(parent, message)

    def remove(self, name: str) -> None:
        """Deletes the message if it exists."""
        with self._store.transaction():
            for parent in self._parents(name):
                with self._change(name, parent, None):
                    self._store.query("DELETE FROM resources WHERE name = ?", name)

    def page(self, parent: str, after: str, limit: int) -> list[Any]:
        """At most `limit` messages of the parent with a name greater than `after`."""
        rows = self._store.query(
            "SELECT body FROM resources WHERE collection = ? AND parent = ? AND name > ? "
            "ORDER BY name LIMIT ?",
            self._collection, parent, after, limit,
        )  # fmt: skip
        return [self._message.FromString(row["body"]) for row in rows]

    def at(self, when: float, parent: str) -> list[Any]:
        """The messages of the parent as they were at a time, by name; see `History.bodies_at`."""
        assert self._history, "only nodes and queued resources have a past"  # noqa: S101
        bodies = self._history.bodies_at(when, self._collection, parent)
        return [self._message.FromString(body) for _, body in sorted(bodies.items())]

    def since(self, when: float, parent: str) -> list[Any]:
        """The messages that the parent has or had at any time since; see `History.bodies_since`."""
        assert self._history, "only nodes and queued resources have a past"  # noqa: S101
        bodies = self._history.bodies_since(when, self._collection, parent)
        return [self._message.FromString(body) for body in bodies.values()]

    def all(self) -> list[Any]:
        """Every message, ordered by name."""
        rows = self._store.query(
            "SELECT body FROM resources WHERE collection = ? ORDER BY name", self._collection
        )
        return [self._message.FromString(row["body"]) for row in rows]

    def _parents(self, name: str) -> list[str]:
        """The parent of an existing message; empty when it is gone."""
        rows = self._store.query("SELECT parent FROM resources WHERE name = ?", name)
        return [row["parent"] for row in rows]

    @contextmanager
    def _change(self, name: str, parent: str, message: Any | None) -> Iterator[None]:
        with self._store.transaction():
            if self._history:
                self._history.note_body(name, self._collection, parent)
            yield
            if self._history:
                self._history.note_state(name, message)


@dataclass(frozen=True)
class Transition:
    """A planned state change. Transitions with the same `serial` never run at the same time."""

    id: int
    due: float
    serial: str
    action: str
    target: str
    arguments: dict[str, Any]


@dataclass
class WorkerRow:
    """One worker host (VM) of a node and the process that runs its startup script."""

    marker: str
    node: str
    number: int
    port: int = 0
    pid: int = 0
    started: float = 0.0
    exit_code: int | None = None
    boots: int = 0
    preempted: bool = False
    maintenance: bool = False
    dead: bool = False
    """The host is broken: it does not boot (any more)."""


@dataclass
class Call:
    """One received API call; `code` is empty while it is being answered."""

    method: str
    name: str
    request: str
    zone: str = ""
    caller: str = ""
    received: float = field(default_factory=time.time)


class Store:
    """Typed access to the database. Every method is safe to call from any thread."""

    def __init__(self, path: Path, *, keep_calls: int = 200_000) -> None:
        """Opens or creates the file.

        Raises:
            StateError: another version of the emulator wrote it.
        """
        self._lock = threading.RLock()
        self._depth = 0
        self._keep_calls = keep_calls
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        schema.prepare(self._db, path)
        self.history = History(self.query)
        self.nodes = Table(self, "nodes", messages.Node, self.history)
        self.queued_resources = Table(
            self, "queuedResources", messages.QueuedResource, self.history
        )
        self.operations = Table(self, "operations", messages.Operation)
        self.on_schedule: Callable[[], None] = lambda: None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; a nested one joins the outer one. No other thread sees a part of it."""
        with self._lock:
            if self._depth == 0:
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                self._depth -= 1
                if self._depth == 0:
                    self._db.execute("ROLLBACK")
                raise
            self._depth -= 1
            if self._depth == 0:
                self._db.execute("COMMIT")

    def query(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """Runs one statement and returns its rows."""
        with self._lock:
            return self._db.execute(sql, values).fetchall()

    def close(self) -> None:
        """Closes the database; later calls fail."""
        with self._lock:
            self._db.close()

    def next_number(self, counter: str) -> int:
        """1, 2, 3, ... per counter, never repeated."""
        rows = self.query(
            "INSERT INTO counters VALUES (?, 1) "
            "ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value",
            counter,
        )
        return int(rows[0]["value"])

    # Requests that may be replayed

    def replayed(self, request_id: str, method: str) -> sqlite3.Row | None:
        """Target and operation of an earlier call with this request id."""
        rows = self.query(
            "SELECT target, operation FROM requests WHERE request_id = ? AND method = ?",
            request_id, method,
        )  # fmt: skip
        return rows[0] if rows else None

    def remember_request(self, request_id: str, method: str, target: str, operation: str) -> None:
        """Keeps the operation that answers every replay of this request id."""
        self.query(
            "INSERT INTO requests VALUES (?, ?, ?, ?)", request_id, method, target, operation
        )

    # Transitions

    def schedule(
        self, action: str, target: str, *, serial: str, delay: float, **arguments: Any
    ) -> None:
        """Plans `action` on `target` in `delay` seconds; survives a restart."""
        self.query(
            "INSERT INTO transitions (due, serial, action, target, arguments) "
            "VALUES (?, ?, ?, ?, ?)",
            time.time() + delay, serial, action, target, json.dumps(arguments),
        )  # fmt: skip
        self.on_schedule()

    def transitions(self) -> list[Transition]:
        """Every planned transition, the earliest first."""
        return [
            Transition(**{**row, "arguments": json.loads(row["arguments"])})
            for row in map(dict, self.query("SELECT * FROM transitions ORDER BY due, id"))
        ]

    def drop_transition(self, transition_id: int) -> None:
        """Removes a transition that has run."""
        self.query("DELETE FROM transitions WHERE id = ?", transition_id)

    def drop_transitions(self, serial: str) -> None:
        """Removes every transition of a series."""
        self.query("DELETE FROM transitions WHERE serial = ?", serial)

    def postpone_transition(self, transition_id: int, delay: float) -> None:
        """Reschedules a transition that failed."""
        self.query(
            "UPDATE transitions SET due = ? WHERE id = ?", time.time() + delay, transition_id
        )

    def hasten_transitions(self, actions: Iterable[str], target_part: str) -> int:
        """Makes actions on targets with `target_part` in their names due now; returns how many."""
        rows = self.query(
            "UPDATE transitions SET due = ? WHERE action IN (SELECT value FROM json_each(?)) "
            "AND instr(target, ?) > 0 RETURNING id",
            time.time(), json.dumps(list(actions)), target_part,
        )  # fmt: skip
        self.on_schedule()
        return len(rows)

    # Workers

    def put_worker(self, worker: WorkerRow) -> None:
        """Inserts or replaces the row of this marker."""
        self.query(
            "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *vars(worker).values(),
        )

    def workers(self, node: str = "") -> list[WorkerRow]:
        """The workers of one node, or all, by number."""
        rows = self.query("SELECT * FROM workers WHERE ? IN ('', node) ORDER BY node, number", node)
        return [
            WorkerRow(**row | {flag: bool(row[flag]) for flag in _WORKER_FLAGS})
            for row in map(dict, rows)
        ]

    def remove_workers(self, node: str) -> None:
        """Forgets the workers of a node."""
        self.query("DELETE FROM workers WHERE node = ?", node)

    def set_worker_dead(self, marker: str) -> None:
        """Records that the host is broken."""
        self.query("UPDATE workers SET dead = 1 WHERE marker = ?", marker)

    def set_worker_flag(self, node: str, flag: str, *, on: bool) -> None:
        """Sets `preempted` or `maintenance` of all workers of a node."""
        assert flag in _WORKER_FLAGS, flag  # noqa: S101 - becomes SQL
        self.query(f"UPDATE workers SET {flag} = ? WHERE node = ?", on, node)  # noqa: S608

    def set_worker_exit(self, marker: str, pid: int, exit_code: int) -> None:
        """Records the exit code of the startup script that ran as this process."""
        self.query(
            "UPDATE workers SET exit_code = ? WHERE marker = ? AND pid = ?", exit_code, marker, pid
        )

    # Calls

    def begin_call(self, call: Call) -> int:
        """Records a call before it is answered, and returns its number."""
        rows = self.query(
            "INSERT INTO calls (received, method, name, zone, caller, code, message, request) "
            "VALUES (?, ?, ?, ?, ?, '', '', ?) RETURNING id",
            call.received, call.method, call.name, call.zone, call.caller, call.request,
        )  # fmt: skip
        number = int(rows[0]["id"])
        if number % 1000 == 0:
            self.query("DELETE FROM calls WHERE id <= ?", number - self._keep_calls)
        return number

    def end_call(self, number: int, code: str, message: str) -> None:
        """Records the answer."""
        self.query(
            "UPDATE calls SET finished = ?, code = ?, message = ? WHERE id = ?",
            time.time(), code, message, number,
        )  # fmt: skip
