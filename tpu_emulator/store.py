"""The emulator's memory: one SQLite file that survives restarts and kills of the process."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tpu_emulator import messages

_SCHEMA = """
CREATE TABLE IF NOT EXISTS resources (
    name TEXT PRIMARY KEY, collection TEXT, parent TEXT, body BLOB);
CREATE INDEX IF NOT EXISTS resources_by_parent ON resources (collection, parent, name);
CREATE TABLE IF NOT EXISTS requests (
    request_id TEXT, method TEXT, target TEXT, operation TEXT, PRIMARY KEY (request_id, method));
CREATE TABLE IF NOT EXISTS transitions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, due REAL, serial TEXT, action TEXT, target TEXT,
    arguments TEXT);
CREATE TABLE IF NOT EXISTS workers (
    marker TEXT PRIMARY KEY, node TEXT, number INTEGER, port INTEGER, pid INTEGER,
    started REAL, exit_code INTEGER, boots INTEGER, preempted INTEGER);
CREATE TABLE IF NOT EXISTS faults (
    id INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT, scope TEXT, remaining INTEGER, details TEXT);
CREATE TABLE IF NOT EXISTS calls (
    id INTEGER PRIMARY KEY AUTOINCREMENT, received REAL, finished REAL, method TEXT, name TEXT,
    code TEXT, message TEXT, request TEXT);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER);
"""


class Table:
    """Protobuf messages of one collection by resource name, ordered by name in their parent."""

    def __init__(self, store: Store, collection: str, message: Any) -> None:
        self._store = store
        self._collection = collection
        self._message = message

    def get(self, name: str) -> Any | None:
        """The message, or None."""
        rows = self._store.query(
            "SELECT body FROM resources WHERE name = ? AND collection = ?", name, self._collection
        )
        return self._message.FromString(rows[0]["body"]) if rows else None

    def put(self, parent: str, message: Any) -> None:
        """Inserts or replaces the message under its own `name`."""
        self._store.query(
            "INSERT OR REPLACE INTO resources VALUES (?, ?, ?, ?)",
            message.name, self._collection, parent, message.SerializeToString(),
        )  # fmt: skip

    def update(self, message: Any) -> None:
        """Replaces the body of an existing message; does nothing when it is gone."""
        self._store.query(
            "UPDATE resources SET body = ? WHERE name = ?",
            message.SerializeToString(), message.name,
        )  # fmt: skip

    def remove(self, name: str) -> None:
        """Deletes the message if it exists."""
        self._store.query("DELETE FROM resources WHERE name = ?", name)

    def page(self, parent: str, after: str, limit: int) -> list[Any]:
        """At most `limit` messages of the parent with a name greater than `after`."""
        rows = self._store.query(
            "SELECT body FROM resources WHERE collection = ? AND parent = ? AND name > ? "
            "ORDER BY name LIMIT ?",
            self._collection, parent, after, limit,
        )  # fmt: skip
        return [self._message.FromString(row["body"]) for row in rows]

    def all(self) -> list[Any]:
        """Every message, ordered by name."""
        rows = self._store.query(
            "SELECT body FROM resources WHERE collection = ? ORDER BY name", self._collection
        )
        return [self._message.FromString(row["body"]) for row in rows]


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


@dataclass
class Call:
    """One received API call; `code` is empty while it is being answered."""

    method: str
    name: str
    request: str
    received: float = field(default_factory=time.time)


class Store:
    """Typed access to the database. Every method is safe to call from any thread."""

    def __init__(self, path: Path, *, keep_calls: int = 200_000) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._keep_calls = keep_calls
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._db.row_factory = sqlite3.Row
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.executescript(_SCHEMA)
        self.nodes = Table(self, "nodes", messages.Node)
        self.queued_resources = Table(self, "queuedResources", messages.QueuedResource)
        self.operations = Table(self, "operations", messages.Operation)
        self.on_schedule: Callable[[], None] = lambda: None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing; a nested one joins the outer one. No other thread sees a half of it."""
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
        """Plans a transition that failed again."""
        self.query(
            "UPDATE transitions SET due = ? WHERE id = ?", time.time() + delay, transition_id
        )

    # Workers

    def put_worker(self, worker: WorkerRow) -> None:
        """Inserts or replaces the row of this marker."""
        self.query(
            "INSERT OR REPLACE INTO workers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            *vars(worker).values(),
        )

    def workers(self, node: str = "") -> list[WorkerRow]:
        """The workers of one node, or all, by number."""
        rows = self.query("SELECT * FROM workers WHERE ? IN ('', node) ORDER BY node, number", node)
        return [
            WorkerRow(**{**row, "preempted": bool(row["preempted"])}) for row in map(dict, rows)
        ]

    def remove_workers(self, node: str) -> None:
        """Forgets the workers of a node."""
        self.query("DELETE FROM workers WHERE node = ?", node)

    def set_worker_exit(self, marker: str, pid: int, exit_code: int) -> None:
        """Notes how the startup script of this very process ended."""
        self.query(
            "UPDATE workers SET exit_code = ? WHERE marker = ? AND pid = ?", exit_code, marker, pid
        )

    # Calls

    def begin_call(self, call: Call) -> int:
        """Records a call before it is answered, and returns its number."""
        rows = self.query(
            "INSERT INTO calls (received, method, name, code, message, request) "
            "VALUES (?, ?, ?, '', '', ?) RETURNING id",
            call.received, call.method, call.name, call.request,
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
