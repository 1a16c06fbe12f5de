"""The kernel's out-of-memory killer is told apart from a plain kill."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from pipeline_store.formats import ExitKind
from tests.tpu_agent.world import World
from tpu_agent.diagnosis import kill_count

CGROUPS = Path("/sys/fs/cgroup")
LIMIT_BYTES = 96 << 20


@pytest.mark.parametrize(
    ("membership", "counter", "content"),
    [
        ("0::/a/b\n", "cgroup/a/b/memory.events", "low 0\noom 9\noom_kill 3\n"),
        ("2:cpu:/x\n4:memory:/a\n0::/\n", "cgroup/memory/a/memory.oom_control", "oom_kill 3\n"),
        ("0::/\n", "proc/vmstat", "nr_free_pages 7\noom_kill 3\n"),
    ],
)
def test_counters_of_both_cgroup_versions_and_of_the_machine(
    tmp_path: Path, membership: str, counter: str, content: str
) -> None:
    for name, text in (("proc/self/cgroup", membership), (counter, content)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert kill_count(tmp_path / "proc", tmp_path / "cgroup") == 3


def test_no_counter_is_zero(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/cgroup").write_text("0::/\n")
    assert kill_count(tmp_path, tmp_path) == 0


@pytest.fixture
def memory_cgroup() -> Iterator[Path]:
    """A cgroup whose processes the kernel kills when they use more than the limit."""
    version_2 = (CGROUPS / "cgroup.controllers").exists()
    folder = (CGROUPS if version_2 else CGROUPS / "memory") / f"agent-test-{uuid.uuid4().hex[:8]}"
    limit = folder / ("memory.max" if version_2 else "memory.limit_in_bytes")
    try:
        folder.mkdir()
        limit.write_text(str(LIMIT_BYTES))
    except OSError as error:
        if folder.exists():
            folder.rmdir()
        pytest.skip(f"needs the right to make a memory cgroup: {error}")
    yield folder
    end = time.monotonic() + 10
    while (alive := (folder / "cgroup.procs").read_text().split()) and time.monotonic() < end:
        for pid in alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.05)
    folder.rmdir()


def test_the_kernel_kills_a_greedy_job(world: World, memory_cgroup: Path) -> None:
    world.add_job("010-train", "eats", max_restarts=3)
    join = f"echo $$ > {memory_cgroup}/cgroup.procs && exec {shlex.join(world.agent_command())}"
    agent = world.start_agent(["/bin/sh", "-c", join])
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.restarts) == (ExitKind.OUT_OF_MEMORY, 0)
    assert "global_batch_size" in status.message
    world.finish_agent(agent)


def test_a_kill_is_not_taken_for_a_lack_of_memory(world: World) -> None:
    before = kill_count()
    world.add_job("010-train", "killed", "9", max_restarts=0)
    world.start_agent()
    kind = world.wait_status("010-train").exit_kind
    # Something else on this machine may have run out of memory meanwhile.
    assert kind is ExitKind.KILLED or kill_count() > before
