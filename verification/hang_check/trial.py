"""Runs one job on one or two hosts with real agents, in a mailbox like that of a run's tasks."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from pipeline_config import PipelineConfig
from pipeline_store import identity, uris
from pipeline_store.formats import (
    AttemptEvent,
    ExitKind,
    HangReport,
    Heartbeat,
    JobStatus,
    PhaseName,
    RunRecord,
)
from pipeline_store.layout import StoreLayout
from tpu_agent import processes
from tpu_emulator.metadata import MetadataServer
from tpu_lifecycle.control.mailbox import read_hangs, submit_job
from tpu_lifecycle.control.release import become_holder
from tpu_lifecycle.records.reservation import reserve
from verification.hang_check.injected import FOLDER
from verification.hang_check.prepared import PARTITION, ZONE, Prepared

JOB = "010-job"
PATIENCE_SECONDS = 900.0
LOOP_DELAY = 0.1
"""Delay of each loop: on an idle machine the tiny loops would be over before a fault can happen."""
_NODE = "hang-check"
_PAUSE_SECONDS = 0.02


class TrialError(RuntimeError):
    """A trial did not get far enough to show anything."""


class Trial:
    """A job that agents run, as a context manager; at exit only its folder is left."""

    def __init__(
        self,
        folder: Path,
        prepared: Prepared,
        config: PipelineConfig,
        *,
        hosts: int = 1,
        acts: Sequence[dict[str, Any]] = (),
    ) -> None:
        """Create the mailbox.

        :param acts: acts to inject into the trainer; see :mod:`verification.hang_check.injected`.
        """
        shutil.rmtree(folder, ignore_errors=True)
        (folder / "real-store").mkdir(parents=True)
        (folder / "store").symlink_to(folder / "real-store")
        self._folder, self._prepared, self._hosts = folder, prepared, hosts
        self.store = StoreLayout(str(folder / "store"))
        run_id = f"hang-check__{folder.name}"
        key = identity.run_key(_NODE, run_id)
        self.run = self.store.run(key)
        uris.write(self.run.config, config.to_bytes())
        self.run_record = RunRecord(
            run_key=key,
            dag_id=_NODE,
            run_id=run_id,
            partition=PARTITION,
            lineage_id=config.model.lineage_id,
            config_sha256=config.sha256,
            created=datetime.now(UTC),
        )
        self.run_record.write(self.run.record)
        self._reservation = reserve(
            self.store, self.run.root, project_id=_NODE, owner=_NODE, bundle_sha256="0" * 64
        )
        attempt = self._reservation.new_attempt(1, ZONE).mark_asked()
        self.attempt = attempt.mark(AttemptEvent.READY, workers=hosts)
        become_holder(self.run, self.attempt.attempt)
        for host in range(hosts):
            self.host_folder(host).mkdir()
            plan = {"delay": {"loop": LOOP_DELAY}, "acts": list(acts)}
            (self.host_folder(host) / "plan.json").write_text(json.dumps(plan))
        self._agents: list[subprocess.Popen[bytes]] = []
        endpoints = ",".join(["unknown:unknown:127.0.0.1"] * hosts)
        key = str(self._reservation.job_key)
        attributes = {
            "job-key": key,
            "tpu-env": f"NODE_ID: '{_NODE}'\n",
            "worker-network-endpoints": endpoints,
        }
        self._metadata = MetadataServer(lambda: {"instance": {"attributes": attributes}})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for agent in self._agents:
            agent.kill()
            agent.wait()
        for host in range(self._hosts):
            processes.kill(self._work_dir(host))
        self._metadata.close()

    def host_folder(self, host: int) -> Path:
        """Return the folder with a host's plan and records of acts."""
        return self._folder / f"host-{host}"

    def begin(self, entry_point: str, arguments: Sequence[str]) -> None:
        """Submit the job and start the agents."""
        submit_job(
            self._reservation,
            self.attempt,
            job_id=JOB,
            entry_point=entry_point,
            arguments=arguments,
        )
        self._agents = [self._agent(host) for host in range(self._hosts)]

    def train(self) -> None:
        """Begin a training."""
        self.begin("training.train", self._prepared.train(self.run))

    def _agent(self, host: int) -> subprocess.Popen[bytes]:
        options = {
            "mailbox": self.attempt.layout.root,
            "released-uri": self._reservation.layout.released,
            "token": self.attempt.attempt.token,
            "worker": str(host),
            "bundle-sha256": "0" * 64,
            "expires-at": self._reservation.record.expires_at.isoformat(),
            "heartbeat-interval": "0.2",
            "poll-interval": "0.2",
            "work-dir": str(self._work_dir(host)),
        }
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        environment = os.environ | {
            "PYTHONPATH": str(self._prepared.code),
            "GCE_METADATA_HOST": f"127.0.0.1:{self._metadata.port}",
            FOLDER: str(self.host_folder(host)),
        }
        with (self._folder / f"agent-{host}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tpu_agent", *words],
                cwd=self._prepared.code,
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _work_dir(self, host: int) -> Path:
        return (self._folder / f"work-{host}").resolve()

    def beat(self, host: int = 0) -> Heartbeat | None:
        """Return a host's last heartbeat."""
        return Heartbeat.load_or_none(self.attempt.layout.heartbeat(host))

    def wait_for_loops(self, step: int, host: int = 0) -> float:
        """Wait until the job is in its loops after a step; return the phase's limit in seconds."""

        def probe() -> float | None:
            beat = self.beat(host)
            if beat is None or beat.progress is None or beat.progress.step < step:
                return None
            is_in_loops = beat.phase is not None and beat.phase.name is PhaseName.LOOP
            return beat.phase_limit_seconds if is_in_loops else None

        return self.wait(f"the loops after step {step}", probe)

    def wait_until_acted(self, host: int = 0) -> float:
        """Wait for the planned act in the trainer; return its time in seconds since the epoch."""
        file = self.host_folder(host) / "acted"
        return float(
            self.wait("what was planned", lambda: (file.exists() and file.read_text()) or None)
        )

    def wait(self, what: str, probe: Callable[[], Any]) -> Any:
        """Poll a probe and return its first answer that is not None.

        :raises TrialError: there is none in time, or the job has ended before.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        while (answer := probe()) is None:
            ended = JobStatus.load_or_none(self.attempt.layout.status(0, JOB))
            if ended is not None or time.monotonic() > deadline:
                said = ended.message if ended else "the time is over"
                raise TrialError(f"waited in vain for {what}: {said}")
            time.sleep(_PAUSE_SECONDS)
        return answer

    def signal(self, number: signal.Signals, host: int = 0) -> None:
        """Send a signal to the job's own process on a host."""
        work_dir = self._work_dir(host)
        for pid in processes.marked(work_dir):
            if processes.leads_group(pid):
                processes.send(pid, work_dir, number)

    @contextmanager
    def store_away(self) -> Iterator[None]:
        """Let the store fail while the block runs: its link points to itself."""
        self._link(self._folder / "store")
        try:
            yield
        finally:
            self._link(self._folder / "real-store")

    def _link(self, target: Path) -> None:
        aside = self._folder / "link"
        aside.symlink_to(target)
        aside.replace(self._folder / "store")

    def end(self) -> JobStatus:
        """Wait for the job's end on all hosts; return a status that is not ok, else the first.

        :raises TrialError: it does not end in time.
        """
        deadline = time.monotonic() + PATIENCE_SECONDS
        uris_of = [self.attempt.layout.status(host, JOB) for host in range(self._hosts)]
        while None in (statuses := [JobStatus.load_or_none(uri) for uri in uris_of]):
            if time.monotonic() > deadline:
                raise TrialError("the job does not end")
            time.sleep(0.1)
        ended = [status for status in statuses if status is not None]
        return next((one for one in ended if one.exit_kind is not ExitKind.OK), ended[0])

    def has_ended(self) -> bool:
        """Return whether the job has ended on the first host."""
        return uris.exists(self.attempt.layout.status(0, JOB))

    def hangs(self) -> list[list[HangReport]]:
        """Return the reports of each hang."""
        return read_hangs(self.attempt)
