"""A disk that is really full: the job's end still arrives, and says so."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pipeline_store.formats import ExitKind
from tests.tpu_agent.world import World


@contextmanager
def small_disk(folder: Path, mebibytes: int) -> Iterator[None]:
    """Mount a file system of its own; skip the test where that is not allowed."""
    folder.mkdir()
    command = ["/bin/mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "agent-test", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"needs the right to mount: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["/bin/umount", "--lazy", str(folder)], check=True)


def test_a_job_that_fills_the_disk_of_the_agent(world: World) -> None:
    with small_disk(world.work_dir, 80):
        world.add_job("010-train", "fills", str(world.work_dir))
        world.add_job("020-evaluate", "exits", "0")
        agent = world.start_agent()
        status = world.wait_status("010-train")
        assert status.exit_kind is ExitKind.FAILED
        assert "The TPU VM's disk is full (0 MiB free)" in status.message
        assert "training.max_to_keep" in status.message
        world.wait_heartbeat("a sign of life", lambda beat: beat.time > status.finished)
        assert agent.poll() is None
        world.finish_agent(agent)
        agent.wait()


def test_an_agent_starts_and_reports_on_a_full_disk(world: World) -> None:
    with small_disk(world.work_dir, 80):
        world.add_job("010-train", "fills", str(world.work_dir))
        agent = world.start_agent()
        world.wait_status("010-train")
        agent.kill()
        agent.wait()
        world.add_job("020-evaluate", "exits", "0")
        agent = world.start_agent()
        status = world.wait_status("020-evaluate")
        assert status.exit_kind is ExitKind.FAILED
        assert "The TPU VM's disk is full (0 MiB free)" in status.message
        world.finish_agent(agent)


def test_a_job_that_fills_another_disk(world: World) -> None:
    data = world.root / "data"
    with small_disk(data, 2):
        world.add_job("010-train", "fills", str(data))
        agent = world.start_agent()
        status = world.wait_status("010-train")
        assert status.exit_kind is ExitKind.FAILED
        assert "[Errno 28] No space left on device" in status.message
        assert "disk is full" in status.message
        world.finish_agent(agent)
