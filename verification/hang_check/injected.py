"""Makes the real trainer hang or pause at a point in its code; runs inside it, without imports.

A copy of this file is in the code that a trial's agents run. There the last lines of some modules
wrap a function with :func:`at`. The acts are in ``plan.json`` of the folder that a variable names::

    {"delay": {"loop": 0.1}, "acts": [{"point": "save", "start": 1, "call": 2, "how": "hang"}]}

``start`` and ``call`` count the starts of the process and the calls of the function, from 1.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "HANG_CHECK_FOLDER"
"""Variable that names a folder with the plan and records of acts; each host has its own."""

POINTS = {
    "read": ("trained_models/artifacts.py", "verify_file"),
    "input": ("training/input/records.py", "RecordReader.read"),
    "loop": ("training/input/data.py", "TrainingBatches.take"),
    "write": ("training/model/checkpoints.py", "write_files"),
    "commit": ("trained_models/checkpoint_store.py", "CheckpointStore.commit"),
    "evaluation": ("training/evaluation/evaluator.py", "_score_set"),
}
"""Points that can be wrapped: module, and function or method in it."""

_calls: Counter[str] = Counter()
_lock = threading.Lock()


def inject(code: Path) -> None:
    """Wrap all points in a copy of the code with :func:`at`."""
    (code / "injected.py").write_text(Path(__file__).read_text())
    for point, (module, name) in POINTS.items():
        with (code / module).open("a") as file:
            file.write(f"\n\nimport injected  # noqa\n{name} = injected.at({point!r}, {name})\n")


def at(point: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper that performs the planned acts and then calls the function."""

    @functools.wraps(function)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        with _lock:
            _calls[point] += 1
            call = _calls[point]
        folder, start = _started()
        if folder is not None:
            _act(folder, start, point, call)
        return function(*arguments, **named)

    return wrapped


@functools.cache
def _started() -> tuple[Path | None, int]:
    """Return the folder, and the number of this start of the process."""
    if FOLDER not in os.environ:
        return None, 0
    folder, start = Path(os.environ[FOLDER]), 1
    while True:
        try:
            (folder / f"start-{start}").open("x").close()
        except FileExistsError:
            start += 1
        else:
            return folder, start


def _act(folder: Path, start: int, point: str, call: int) -> None:
    plan = json.loads((folder / "plan.json").read_text())
    time.sleep(plan["delay"].get(point, 0.0))
    for act in plan["acts"]:
        if (act["point"], act["start"], act["call"]) == (point, start, call):
            (folder / "acted").write_text(str(time.time()))
            HOW[act["how"]](folder, act.get("seconds", 0.0))


def _hang(folder: Path, seconds: float) -> None:
    threading.Event().wait()


def _hold_the_gil(folder: Path, seconds: float) -> None:
    # A second lock of the same mutex never returns, whatever signals come. PyDLL keeps the GIL.
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def _read_for_ever(folder: Path, seconds: float) -> None:
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    pipe.read_bytes()


def _pause(folder: Path, seconds: float) -> None:
    time.sleep(seconds)


def _wait_for_the_store(folder: Path, seconds: float) -> None:
    while not (folder / "store-is-back").exists():
        time.sleep(0.1)


HOW: dict[str, Callable[[Path, float], None]] = {
    "hang": _hang,
    "hold-the-gil": _hold_the_gil,
    "read-for-ever": _read_for_ever,
    "pause": _pause,
    "wait-for-the-store": _wait_for_the_store,
}
