"""Collects the stacks of all threads of a job's processes.

A process that has put a file named by its pid into the job's folder of stacks answers SIGUSR1 there
(:mod:`training.runtime.job`). For the others, and for threads that run no Python, the kernel tells
what they wait for.
"""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from tpu_agent import processes

ANSWER_SECONDS = 5.0
QUIET_SECONDS = 1.0
"""An answer that has not grown for this long is complete."""
MOST_BYTES = 256 * 1024
"""Limit of one process's answer."""

_PAUSE_SECONDS = 0.05
_PROC = Path("/proc")
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)
_FRAME = re.compile(r'^  File "(?P<path>[^"]+)", line (?P<line>\d+) in (?P<name>.+)$', re.MULTILINE)
_STOPPED = "T"


@dataclass(frozen=True)
class Stacks:
    """The stacks of a job's threads.

    ``top`` has two calls of the job's main thread: the innermost, and the innermost of our code.
    """

    text: str
    top: tuple[str, ...]


def take(work_dir: Path, folder: Path, code: Path) -> Stacks:
    """Return the stacks of all processes of the agent's jobs; wake those that are stopped.

    :param folder: the job's folder of stacks.
    :param code: where our own code is.
    """
    pids = sorted(processes.marked(work_dir), key=lambda pid: not processes.leads_group(pid))
    files = {pid: folder / f"{pid}.txt" for pid in pids}
    begins = {pid: file.stat().st_size for pid, file in files.items() if file.exists()}
    kernel = {pid: _kernel_threads(pid) for pid in pids}
    for pid in begins:
        processes.send(pid, work_dir, signal.SIGUSR1)
    # A stopped process answers when it continues, before anything else.
    wake(work_dir)
    _wait({files[pid]: begin for pid, begin in begins.items()})
    answers = {pid: _answer(files[pid], begin) for pid, begin in begins.items()}
    parts = [
        f"process {pid}: {_command(pid)}\n{answers.get(pid) or 'no answer'}\n{kernel[pid]}\n"
        for pid in pids
    ]
    # The job itself is the first process.
    return Stacks("\n".join(parts), tuple(_top(answers.get(pids[0], ""), code) if pids else ()))


def wake(work_dir: Path) -> None:
    """Continue stopped processes of the agent's jobs: nothing else reaches them."""
    for pid in processes.marked(work_dir):
        if _state(_PROC / str(pid)) == _STOPPED:
            processes.send(pid, work_dir, signal.SIGCONT)


def _wait(begins: dict[Path, int]) -> None:
    """Wait until all answers are complete, or for :data:`ANSWER_SECONDS`."""
    end = time.monotonic() + ANSWER_SECONDS
    grown: dict[Path, tuple[int, float]] = {}
    while time.monotonic() < end:
        for file, begin in begins.items():
            size = file.stat().st_size
            if size > begin and grown.get(file, (0, 0.0))[0] != size:
                grown[file] = size, time.monotonic()
        quiet = time.monotonic() - QUIET_SECONDS
        if all(file in grown and grown[file][1] < quiet for file in begins):
            return
        time.sleep(_PAUSE_SECONDS)


def _answer(file: Path, begin: int) -> str:
    with file.open("rb") as answers:
        answers.seek(begin)
        return answers.read(MOST_BYTES).decode(errors="replace")


def _top(answer: str, code: Path) -> list[str]:
    """Return the innermost call of the main thread, the last one, and our own innermost."""
    main = _THREAD.split(answer)[-1]
    frames = list(_FRAME.finditer(main))
    ours = [frame for frame in frames if Path(frame["path"]).is_relative_to(code)]
    chosen = [*frames[:1], *(frame for frame in ours[:1] if frame is not frames[0])]
    return [_shown(frame, code) for frame in chosen]


def _shown(frame: re.Match[str], code: Path) -> str:
    path = Path(frame["path"])
    if path.is_relative_to(code):
        path = path.relative_to(code)
    shown = str(path).rpartition("/site-packages/")[2]
    return f"{frame['name']} ({shown}:{frame['line']})"


def _kernel_threads(pid: int) -> str:
    """Return the kernel's view of a process's threads, with identical ones in one line."""
    kinds: Counter[str] = Counter()
    for task in (_PROC / str(pid) / "task").glob("*"):
        name, waits = _word(task / "comm"), _word(task / "wchan")
        kinds[f"{name}: state {_state(task)}, waits in {waits or 'nothing known'}"] += 1
    return "\n".join(f"{count} thread(s) {kind}" for kind, count in kinds.most_common())


def _state(folder: Path) -> str:
    """Return the state letter of a process or thread; empty if it has ended."""
    fields = _word(folder / "stat").rpartition(")")[2].split()
    return fields[0] if fields else ""


def _command(pid: int) -> str:
    return _word(_PROC / str(pid) / "cmdline").replace("\0", " ")


def _word(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip().strip("\0")
    except OSError:
        return ""
