"""Starts the agent; the TPU VM's boot script runs this, and again whenever the agent dies.

python -m tpu_agent --mailbox /store/runs/0a1b2c3d4e5f/reservations/g1/attempts/a1 \
    --released-uri /store/runs/0a1b2c3d4e5f/reservations/g1/released.json --token TOKEN \
    --worker 0 --bundle-sha256 SHA256 --expires-at 2026-01-31T12:00:00+00:00 \
    --heartbeat-interval 30 --work-dir /var/lib/tpu-agent/agent
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

from pipeline_store.layout import AttemptLayout
from tpu_agent import metadata
from tpu_agent.agent import Agent
from tpu_agent.config import AgentConfig, moment
from tpu_agent.watch import Watch

_log = logging.getLogger(__name__)


def parse_arguments(arguments: list[str]) -> AgentConfig:
    """Return the configuration that the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="python -m tpu_agent",
        description="Run the jobs of a TPU attempt's mailbox on this worker and report on them. "
        "Exits with 0 when the TPU is released, expired or another attempt's; any other exit is "
        "unexpected and the boot script starts the agent again.",
    )
    add = parser.add_argument
    add("--mailbox", required=True, help="URI of the attempt's folder in the store")
    add("--released-uri", required=True, help="URI of the reservation's tombstone")
    add("--token", required=True, help="token of the attempt; jobs and status carry it")
    add("--worker", required=True, type=int, help="number of this host in the slice, from 0")
    add("--bundle-sha256", required=True, help="hash of the code bundle that was unpacked")
    add("--expires-at", required=True, type=moment, help="ISO 8601; no job runs after this moment")
    add("--heartbeat-interval", required=True, type=float, help="seconds between signs of life")
    add("--work-dir", required=True, type=Path, help="folder of this agent; outlives a reboot")
    add(
        "--poll-interval",
        type=float,
        help="seconds between two looks at the mailbox; default: as the heartbeat, at most 5",
    )
    add(
        "--stop-grace",
        type=float,
        default=25.0,
        help="seconds between SIGTERM and SIGKILL of a job; a preempted VM has about 30 left "
        "(default: 25)",
    )
    add(
        "--settle",
        type=float,
        default=1.0,
        help="seconds after a job's failure in which the end of the VM, which may have caused it, "
        "can still be noticed (default: 1)",
    )
    add(
        "--job-key-file",
        type=Path,
        help="file with the key that jobs are signed with (default: the node's metadata job-key)",
    )
    options = parser.parse_args(arguments)
    return AgentConfig(
        mailbox=AttemptLayout(options.mailbox),
        released_uri=options.released_uri,
        token=options.token,
        worker=options.worker,
        bundle_sha256=options.bundle_sha256,
        bundle_dir=Path(__file__).resolve().parents[1],
        work_dir=options.work_dir.resolve(),
        expires_at=options.expires_at,
        heartbeat_interval=options.heartbeat_interval,
        poll_interval=options.poll_interval or min(options.heartbeat_interval, 5.0),
        stop_grace=options.stop_grace,
        settle=options.settle,
        job_key=_job_key(options.job_key_file),
        boot_began=_told("REPRETRAIN_BOOT_BEGAN"),
        image_pulled=_told("REPRETRAIN_IMAGE_PULLED"),
    )


def _job_key(file: Path | None) -> str | None:
    """Return the key that signs jobs; not from arguments or environment, which jobs could print.

    :raises OSError: there is no such file, or the metadata server does not answer.
    """
    return metadata.attribute("job-key") if file is None else file.read_text().strip()


def _told(variable: str) -> datetime | None:
    """Return a time that the boot script set in the environment; None: it set none."""
    try:
        return datetime.fromtimestamp(float(os.environ[variable]), UTC)
    except (KeyError, ValueError, OverflowError):
        return None


def main() -> int:
    """Run the agent until it is finished."""
    config = parse_arguments(sys.argv[1:])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s agent %(levelname)s %(message)s")
    watch = Watch(config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: watch.shut_down(signal.Signals(received).name))
    try:
        Agent(config, watch).run()
    except BlockingIOError:
        _log.error("another agent works in %s; only one may", config.work_dir)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
