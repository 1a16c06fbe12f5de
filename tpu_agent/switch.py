"""Watches a TPU VM independently of its agent, and deletes the TPU when it is no longer wanted."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pipeline_store import uris
from pipeline_store.formats import FormatError, Heartbeat, JobPhase
from pipeline_store.layout import AttemptLayout
from tpu_agent import own_tpu, processes
from tpu_agent.dead_man import DeadMan, Sight
from tpu_agent.state import JobRecord, WorkDir
from tpu_agent.store import StoreUnavailableError, store_call
from tpu_agent.usage import moves

TICK_SECONDS = 0.5
POLLS_PER_TIMEOUT = 20
LONGEST_POLL_SECONDS = 30.0
AGENT_SECONDS = 5.0
"""Time for the agent to end a job itself, before the switch does."""
SAVE_SECONDS = 25.0
"""Between SIGTERM and SIGKILL of a job."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 60.0
LONGEST_HEADSTART_SECONDS = 60.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SwitchConfig:
    """One VM's switch. Durations are seconds."""

    tpu_name: str
    node_id: str
    tpu_api_endpoint: str
    tpu_deletions: tuple[str, ...]
    mailbox: AttemptLayout
    released_uri: str
    worker: int
    expires_at: datetime
    lease_timeout: float
    work_dir: Path

    @property
    def poll_interval(self) -> float:
        """Return the time between two polls."""
        return min(LONGEST_POLL_SECONDS, self.lease_timeout / POLLS_PER_TIMEOUT)


class Switch:
    """Watches until the VM ends, and deletes its TPU when there is a reason."""

    def __init__(self, config: SwitchConfig) -> None:
        self._config = config
        self._dead_man = DeadMan(config.lease_timeout)

    def run(self) -> None:
        """Work until the VM ends; never returns."""
        # A poll may block on the store for any time; the expiry must not wait for it.
        threading.Thread(target=self._look_for_ever, name="look", daemon=True).start()
        tries, again = 0, 0.0
        while True:
            reason = self._reason()
            if reason is None:
                tries, again = 0, 0.0
            elif time.monotonic() >= again:
                self._prepare(reason, is_first=tries == 0)
                self._delete()
                pause = min(FIRST_PAUSE_SECONDS * 2**tries, LONGEST_PAUSE_SECONDS)
                tries, again = tries + 1, time.monotonic() + pause
            time.sleep(TICK_SECONDS)

    def _reason(self) -> str | None:
        if datetime.now(UTC) >= self._config.expires_at:
            return f"it expired at {self._config.expires_at:%F %T %Z}"
        return self._dead_man.reason

    def _look_for_ever(self) -> None:
        while True:
            try:
                self._dead_man.see(self._look())
            except StoreUnavailableError as error:
                self._dead_man.miss()
                _log.warning("%s; the switch goes on and asks again", error)
            except Exception:  # noqa: BLE001 - the switch must not go blind silently
                self._dead_man.miss()
                _log.exception("looking failed; the switch goes on and looks again")
            time.sleep(self._config.poll_interval)

    def _look(self) -> Sight:
        config = self._config
        lease_uri = config.mailbox.lease
        with store_call(f"reading {lease_uri} and looking for {config.released_uri}"):
            lease = uris.read_or_none(lease_uri)
            is_released = uris.exists(config.released_uri)
            first = self._moves_of_first_worker()
        return Sight(
            lease=lease,
            is_released=is_released,
            moves=(moves(WorkDir(config.work_dir)), first),
            job_runs=bool(processes.marked(config.work_dir)),
        )

    def _moves_of_first_worker(self) -> tuple[str | None, int | None, JobPhase | None] | None:
        """Return job, step and phase of worker 0, which may drive the chips of this one.

        A worker that only lends its chips makes no progress of its own.
        """
        if self._config.worker == 0:
            return None
        try:
            beat = Heartbeat.load_or_none(self._config.mailbox.heartbeat(0))
        except FormatError as error:
            _log.warning("%s", error)
            return None
        if beat is None:
            return None
        return beat.job_id, beat.progress.step if beat.progress else None, beat.phase

    def _prepare(self, reason: str, *, is_first: bool) -> None:
        """Log why, and let the job save: the shutdown of a VM may leave it less time."""
        text = f"this VM deletes its own TPU {self._config.tpu_name}: {reason}"
        try:
            if is_first:
                _log.warning("%s", text)
                self._note_in_logs(text)
                # The first worker's call deletes all of them; the others call in case it cannot.
                time.sleep(min(self._config.worker, LONGEST_HEADSTART_SECONDS))
                self._wait_for_agent()
            processes.end(self._config.work_dir, SAVE_SECONDS)
        except Exception as error:  # noqa: BLE001 - nothing here keeps the TPU
            _log.warning("%s; the TPU is deleted all the same", error)

    def _wait_for_agent(self) -> None:
        end = time.monotonic() + AGENT_SECONDS
        while processes.marked(self._config.work_dir) and time.monotonic() < end:
            time.sleep(TICK_SECONDS)

    def _note_in_logs(self, text: str) -> None:
        for folder in WorkDir(self._config.work_dir).jobs():
            try:
                record = JobRecord.load_or_none(folder.record)
                if record is not None and record.outcome is None:
                    with folder.log.open("ab") as log:
                        log.write(f"[agent] {text}\n".encode())
            except (OSError, ValueError) as error:
                _log.warning("%s: %s", folder.log, error)

    def _delete(self) -> None:
        config = self._config
        try:
            answer = own_tpu.delete(
                config.tpu_name, config.node_id, config.tpu_deletions, config.tpu_api_endpoint
            )
        except Exception as error:  # noqa: BLE001 - nothing else is left that would retry
            _log.error("deleting this TPU failed, it is tried again: %r", error)
        else:
            _log.warning("%s", answer)
