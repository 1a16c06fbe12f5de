"""Tells the kernel's out-of-memory killer from any other SIGKILL."""

from __future__ import annotations

from pathlib import Path


def kill_count(
    proc: Path = Path("/proc"),
    cgroups: Path = Path("/sys/fs/cgroup"),
) -> int:
    """Return how many processes the kernel has killed for lack of memory so far.

    Counted is the agent's own cgroup, in which its jobs run too; where the kernel does not count by
    cgroup, the whole machine. A job that was killed while this number grew ran out of memory.
    Source: https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.events, oom_kill)
    """
    for path in [*_cgroup_counters(proc, cgroups), proc / "vmstat"]:
        count = _read(path)
        if count is not None:
            return count
    return 0


def _cgroup_counters(proc: Path, cgroups: Path) -> list[Path]:
    counters = []
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            counters.append(cgroups / path.lstrip("/") / "memory.events")
        elif "memory" in controllers.split(","):
            counters.append(cgroups / "memory" / path.lstrip("/") / "memory.oom_control")
    return counters


def _read(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    pairs = (line.split() for line in lines)
    return next((int(pair[1]) for pair in pairs if pair[0] == "oom_kill"), None)
