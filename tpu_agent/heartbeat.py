"""Reports to the mailbox every few seconds: the worker's heartbeat, its job's progress and log.

It runs in its own thread, so it continues while the agent waits for a job or for the store.
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Self

from pipeline_store.formats import Heartbeat
from tpu_agent.config import AgentConfig
from tpu_agent.job import Job
from tpu_agent.state import WorkDir
from tpu_agent.store import StoreUnavailableError, store_call
from tpu_agent.usage import usage

_LAST_BEAT_SECONDS = 10.0

_log = logging.getLogger(__name__)


class Reporter:
    """Sender of heartbeats while the ``with`` block runs."""

    def __init__(self, config: AgentConfig) -> None:
        self._config = config
        self._job: Job | None = None
        self._log_chunks = 0
        self._now = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._now.set()
        # A store that does not answer must not hold up the end.
        self._thread.join(_LAST_BEAT_SECONDS)

    @contextmanager
    def following(self, job: Job) -> Iterator[None]:
        """Report on this job while the block runs; report its start and end immediately."""
        self._job = job
        self._now.set()
        try:
            yield
        finally:
            self._job = None
            self._log_chunks = job.log.chunks
            self._now.set()

    def _run(self) -> None:
        while True:
            self._now.clear()
            self._survive(self._upload_log)
            self._survive(self._beat)
            if self._ended.is_set():
                return
            self._now.wait(self._config.heartbeat_interval)

    @staticmethod
    def _survive(action: Callable[[], None]) -> None:
        # Whatever fails here, the job is worth more than a report on it, and the next report may
        # succeed. If none succeeds, the silence itself notifies the orchestrator.
        try:
            action()
        except StoreUnavailableError as error:
            _log.warning("%s; tried again with the next heartbeat", error)
        except Exception:  # noqa: BLE001 - any report is better than none
            _log.exception("heartbeat failed; tried again with the next one")

    def _upload_log(self) -> None:
        if job := self._job:
            job.log.upload()

    def _beat(self) -> None:
        job, now = self._job, datetime.now(UTC)
        heartbeat = Heartbeat(
            worker=self._config.worker,
            token=self._config.token,
            time=now,
            job_id=job.job_id if job else None,
            progress=job.progress() if job else None,
            phase=job.phase if job else None,
            phase_limit_seconds=job.phase_limit if job else None,
            log_chunks=job.log.chunks if job else self._log_chunks,
            disk_free_bytes=shutil.disk_usage(self._config.work_dir).free,
            usage=usage(WorkDir(self._config.work_dir), now),
        )
        uri = self._config.mailbox.heartbeat(self._config.worker)
        with store_call(f"writing {uri}"):
            heartbeat.write(uri)
