"""The agent's main loop: check the permission to run, then run new jobs until told to stop."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import PurePosixPath

from pipeline_store import job_signatures, uris
from pipeline_store.formats import AgentHello, FormatError, JobLimits, JobSpec
from tpu_agent import processes
from tpu_agent.config import AgentConfig
from tpu_agent.heartbeat import Reporter
from tpu_agent.runner import JobRunner
from tpu_agent.state import AgentRecord, WorkDir
from tpu_agent.store import StoreUnavailableError, store_call
from tpu_agent.watch import Stop, Watch

_log = logging.getLogger(__name__)


class Agent:
    """One worker of one attempt, from its start until the TPU is released or expires."""

    def __init__(self, config: AgentConfig, watch: Watch) -> None:
        self._config = config
        self._watch = watch
        self._reporter = Reporter(config)
        self._runner = JobRunner(config, watch, self._reporter)
        self._done: set[str] = set()

    def run(self) -> None:
        """Work until there is a reason to stop.

        :raises BlockingIOError: another agent works in this folder.
        :raises RuntimeError: a process of an earlier agent's job cannot be ended.
        """
        work_dir = WorkDir(self._config.work_dir)
        with work_dir.locked():
            # Before anything else, and even if this agent may not run: a job whose agent was killed
            # runs on unwatched. It saves a checkpoint, from which its next start resumes.
            if orphans := processes.end(self._config.work_dir, self._config.stop_grace):
                _log.warning("ended processes %s of an earlier agent's job", orphans)
            record = work_dir.count_start(self._config.boot_began, self._config.image_pulled)
            if stop := self._watch.permission():
                _log.info("nothing is started: %s", stop.reason)
                return
            with self._watch, self._reporter:
                stop = self._say_hello(record) or self._work()
            _log.info("finished: %s", stop.reason)

    def _say_hello(self, record: AgentRecord) -> Stop | None:
        uri = self._config.mailbox.hello(self._config.worker)
        hello = AgentHello(
            worker=self._config.worker,
            token=self._config.token,
            started=datetime.now(UTC),
            bundle_sha256=self._config.bundle_sha256,
            host=socket.gethostname(),
            starts=record.starts,
            first_started=record.first_started,
            boot_began=record.boot_began,
            image_pulled=record.image_pulled,
        )
        while True:
            try:
                with store_call(f"writing {uri}"):
                    hello.write(uri)
                return None
            except StoreUnavailableError as error:
                _log.warning("%s; trying again", error)
                if stop := self._watch.wait(self._config.poll_interval):
                    return stop

    def _work(self) -> Stop:
        while True:
            try:
                stop = self._run_new_jobs()
            except StoreUnavailableError as error:
                _log.warning("%s; trying again", error)
                stop = None
            if stop := stop or self._watch.wait(self._config.poll_interval):
                return stop

    def _run_new_jobs(self) -> Stop | None:
        for job_id in self._new_jobs():
            try:
                spec = self._load(job_id)
                limits = self._limits(job_id)
            except FormatError as error:
                self._runner.refuse(job_id, str(error))
            else:
                if stop := self._runner.run(spec, limits):
                    return stop
            self._done.add(job_id)
        return self._watch.stop()

    def _new_jobs(self) -> Iterator[str]:
        """Yield the jobs without a status, in order of name."""
        mailbox = self._config.mailbox
        with store_call(f"listing {mailbox.jobs}"):
            names = [PurePosixPath(uri) for uri in uris.list_files(mailbox.jobs)]
        for job_id in [name.stem for name in names if name.suffix == ".json"]:
            if job_id in self._done:
                continue
            status = mailbox.status(self._config.worker, job_id)
            with store_call(f"looking for {status}"):
                finished = uris.exists(status)
            if finished:
                self._done.add(job_id)
            else:
                yield job_id

    def _limits(self, job_id: str) -> JobLimits | None:
        """Return the limits at which a job counts as hung; None: it was submitted without any."""
        uri = self._config.mailbox.limits(job_id)
        with store_call(f"reading {uri}"):
            return JobLimits.load_or_none(uri)

    def _load(self, job_id: str) -> JobSpec:
        config = self._config
        uri = config.mailbox.job(job_id)
        with store_call(f"reading {uri} and its signature"):
            data = uris.read(uri)
            job_signatures.require_signed(config.mailbox, job_id, data, config.job_key)
        spec = JobSpec.parse(data, uri)
        if spec.job_id != job_id:
            raise FormatError(f"{uri} holds job {spec.job_id!r}; its name must be its job_id.")
        return spec
