"""Faults that the admin service arms and that affect the API methods.

Every fault survives a restart of the emulator, and is chosen by method, zone and caller, never by
magic resource names. A new kind of fault needs a constant here, an admin command that arms it, and
one `take` in the code that it disturbs; or a handler, which is called periodically and checks for
its condition: a time, a file, the next event.
"""

from __future__ import annotations

import json
import logging
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tpu_emulator.errors import ApiError
from tpu_emulator.store import Store

_log = logging.getLogger(__name__)

# Calls. Scope: method, zone, caller.
DENY = "deny"
"""The call answers PERMISSION_DENIED and has no effect."""
FAIL = "fail"
"""The call answers with an error and has no effect. Details: codes, message, seed."""
DELAY = "delay"
"""The reply, or with `commit_late` also the effect, comes late. Details: wait, commit_late."""
LOSE_REPLY = "lose-reply"
"""The call takes effect and answers UNAVAILABLE."""
DUPLICATE = "duplicate"
"""The service receives the call twice; the client sees the second answer."""

# What a call starts or shows. Scope: zone, and for operations the method.
STOCKOUT = "stockout"
"""A create finds no capacity. Details: shape."""
QUOTA = "quota"
"""A create may not exceed this many chips in the zone. Details: family, chips, lag."""
FAIL_OPERATION = "fail-operation"
"""The operation fails and has no effect. Details: code, message."""
FAIL_AFTER_EFFECT = "fail-operation-after-effect"
"""The operation fails although its effect takes place. Details: code, message."""
SLOW_OPERATION = "slow-operation"
"""The operation and its effect take longer. Details: wait."""
STUCK = "stuck-deleting"
"""A deletion stays DELETING. Details: wait, or None for no end."""
STALE_LISTS = "stale-lists"
"""Lists show the past. Details: lag."""

# Nodes. Scope: zone.
PREEMPT_AFTER = "preempt-after"
"""A node is preempted some time after it reached a state. Details: wait, since, node_state."""
PREEMPT_WHEN_FILE = "preempt-when-file"
"""A node is preempted when a file exists. Details: pattern, node_state."""
WORKER = "worker"
"""One worker of a node breaks. Details: worker, fault, wait."""
CHAOS = "chaos"
"""Random disturbances. Details: seed, mean_seconds, kinds, step, due."""

ANY = "*"
NO_BOOT = "no-boot"
"""The worker never boots."""
FAIL_WORKER = "fail"
"""The worker dies some time after READY and never comes back."""
HANG_WORKER = "hang"
"""The worker's processes are frozen some time after READY."""
WORKER_FAULTS = (NO_BOOT, FAIL_WORKER, HANG_WORKER)
_POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Scope:
    """What a fault applies to; `caller` is a part of the caller's user agent."""

    method: str = ANY
    zone: str = ANY
    caller: str = ""


EVERYWHERE = Scope()


class Faults:
    """The armed faults, kept in the store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def arm(
        self,
        kind: str,
        scope: Scope,
        *,
        count: int | None = 1,
        seconds: float | None = None,
        share: float = 1.0,
        **details: Any,
    ) -> None:
        """Makes this fault strike matching calls, operations or nodes.

        Args:
            kind: one of the constants above.
            scope: what it applies to.
            count: how often it strikes; None for no limit.
            seconds: how long it stays armed; None for no limit.
            share: probability that a match is struck, decided by the detail `seed`.
            details: parameters for the code that it disturbs.
        """
        now = time.time()
        self._store.query(
            "INSERT INTO faults (kind, method, zone, caller, remaining, until, share, tries, "
            "armed, details) VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?)",
            kind, scope.method, scope.zone, scope.caller, count,
            None if seconds is None else now + seconds, share, now, json.dumps(details),
        )  # fmt: skip

    def take(
        self,
        kind: str,
        *,
        method: str = "",
        zone: str = "",
        caller: str = "",
        accept: Callable[[dict[str, Any]], bool] = lambda _: True,
    ) -> dict[str, Any] | None:
        """The details of the oldest fault of this kind that strikes, or None; uses it up once.

        `tries` in the result counts the earlier matches.

        Args:
            kind: one of the constants above.
            method: name of the RPC, where the kind has one.
            zone: where it happens.
            caller: the caller's user agent.
            accept: whether a fault with these details applies; if not, it stays armed.
        """
        if not self._matching(kind, method, zone, caller):
            return None  # the usual case, without a transaction
        with self._store.transaction():
            for row in self._matching(kind, method, zone, caller):
                details = json.loads(row["details"])
                if accept(details) and self._strikes(row, details):
                    self._use_up(row)
                    _log.info("fault %s on %s %s: %s", kind, method, zone, row["details"])
                    return details | {"tries": row["tries"]}
        return None

    def of_kind(self, kind: str, zone: str | None = None) -> list[dict[str, Any]]:
        """The armed faults of a kind, in all zones or those that concern one; none is used up."""
        return [
            fault
            for fault in self.armed()
            if fault["kind"] == kind and (zone is None or fault["zone"] in (zone, ANY))
        ]

    def use_up(self, fault: dict[str, Any]) -> None:
        """Counts a strike of a fault that was found by `of_kind` instead of `take`."""
        with self._store.transaction():
            for row in self._store.query("SELECT * FROM faults WHERE id = ?", fault["id"]):
                self._use_up(row)

    def remove(self, fault: dict[str, Any]) -> None:
        """Disarms a fault of `of_kind`."""
        self._store.query("DELETE FROM faults WHERE id = ?", fault["id"])

    def change(self, fault: dict[str, Any], **details: Any) -> None:
        """Changes details of an armed fault."""
        self._store.query(
            "UPDATE faults SET details = ? WHERE id = ?",
            json.dumps(fault["details"] | details), fault["id"],
        )  # fmt: skip

    def armed(self) -> list[dict[str, Any]]:
        """Every fault that is neither used up nor over, the oldest first."""
        rows = self._store.query(
            "SELECT * FROM faults WHERE until IS NULL OR until > ? ORDER BY id", time.time()
        )
        return [{**row, "details": json.loads(row["details"])} for row in map(dict, rows)]

    def disarm(self, kind: str = "", scope: Scope = EVERYWHERE) -> int:
        """Disarms faults and returns how many there were.

        Args:
            kind: only this one; all if empty.
            scope: only those armed for exactly this; `*` and the empty caller mean all.
        """
        rows = self._store.query(
            "DELETE FROM faults WHERE ? IN ('', kind) AND ? IN ('*', method) "
            "AND ? IN ('*', zone) AND ? IN ('', caller) RETURNING id",
            kind, scope.method, scope.zone, scope.caller,
        )  # fmt: skip
        return len(rows)

    def _matching(self, kind: str, method: str, zone: str, caller: str) -> list[sqlite3.Row]:
        return self._store.query(
            "SELECT * FROM faults WHERE kind = ? AND method IN (?, '*') AND zone IN (?, '*') "
            "AND instr(?, caller) > 0 AND (until IS NULL OR until > ?) ORDER BY id",
            kind, method, zone, caller, time.time(),
        )  # fmt: skip

    def _strikes(self, row: sqlite3.Row, details: dict[str, Any]) -> bool:
        self._store.query("UPDATE faults SET tries = tries + 1 WHERE id = ?", row["id"])
        # By seed and number: the same calls in the same order meet the same faults.
        seed = f"{details.get('seed', 0)}/{row['tries']}"
        draw = random.Random(seed).random()  # noqa: S311 - not for secrets
        return draw < row["share"]

    def _use_up(self, row: sqlite3.Row) -> None:
        if row["remaining"] is None:
            return
        if row["remaining"] > 1:
            self._store.query("UPDATE faults SET remaining = remaining - 1 WHERE id = ?", row["id"])
        else:
            self._store.query("DELETE FROM faults WHERE id = ?", row["id"])


class Watch:
    """One thread that calls the handler of every armed fault that has one."""

    def __init__(
        self, faults: Faults, handlers: Mapping[str, Callable[[dict[str, Any]], None]]
    ) -> None:
        """Takes the handlers by kind of fault; they use up the fault when it strikes."""
        self._faults = faults
        self._handlers = handlers
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="watch", daemon=True)

    def start(self) -> None:
        """Starts polling."""
        self._thread.start()

    def stop(self) -> None:
        """Stops after the poll in progress."""
        self._stopped.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            for fault in self._faults.armed():
                if fault["kind"] in self._handlers:
                    self._look(fault)

    def _look(self, fault: dict[str, Any]) -> None:
        try:
            self._handlers[fault["kind"]](fault)
        except ApiError as error:
            _log.info("%s: %s", fault["kind"], error.message)
        except Exception:  # noqa: BLE001 - the other faults must continue
            _log.exception("%s failed, again soon", fault["kind"])
