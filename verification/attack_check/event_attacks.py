"""Attacks on curves: event files of trainings with a flipped bit, as TensorBoard shows them.

TensorBoard is the real one, in its own process. Next to each damaged file is an intact one that it
reads next: once its curve is shown, the damaged one was read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest import mock

from local.commands import import_path
from local.stack.paths import REPOSITORY
from verification.attack_check.rows import Row, Tally

_END = "end"
"""Curve in the intact files."""
_STEPS = 8
_SCALARS = ("loss", "learning_rate")
_PATIENCE_SECONDS = 300.0
_ADDRESS = re.compile(r"at (http://\S+?)/? ")
_UNCHECKED = "--extra_data_server_flags=--no-checksum"
_OPTIONS: list[str] = []
"""Further options of TensorBoard, for the control."""

Found = TypeVar("Found")

Point = tuple[float, int, float]
"""Wall time, step and value of a scalar."""


def flipped_events(folder: Path, times: int) -> Tally:
    """Flip a bit of a training's event file, and check its curves."""
    tally, logs = Tally(), folder / "logs"
    source, end = _write(folder)
    whole = source.read_bytes()
    names = [f"run-{number:04}" for number in range(times)]
    for number, name in enumerate(names):
        changed = bytearray(whole)
        changed[number * 7919 % len(whole)] ^= 1 << number % 8
        (logs / name).mkdir(parents=True)
        (logs / name / "events.out.tfevents.1").write_bytes(changed)
        shutil.copy(end, logs / name / "events.out.tfevents.2")
    (logs / "whole").mkdir()
    shutil.copy(source, logs / "whole" / "events.out.tfevents.1")
    shutil.copy(end, logs / "whole" / "events.out.tfevents.2")
    with _tensorboard(logs, folder / "said") as board:
        tags = board.wait_for_all({*names, "whole"})
        curves = {tag: board.curves(tag, [*names, "whole"]) for tag in _SCALARS}
        said = board.said()
    for name in names:
        tally.add(*_problems(name, tags[name], curves, said))
    if "Traceback" in said or "panicked" in said:
        tally.add(f"TensorBoard: {said[-500:]}")
    return tally


def _write(folder: Path) -> tuple[Path, Path]:
    """Write a training's event file, and another one; return both."""
    # Imports TensorFlow, which few rows need.
    from training.reporting.events import EventFiles

    written = []
    for name, scalars in (("source", _SCALARS), ("rest", (_END,))):
        files = EventFiles(str(folder / name))
        for step in range(_STEPS):
            files.add(step, dict.fromkeys(scalars, 1.0 / (1 + step)))
        files.publish()
        [path] = (folder / name).iterdir()
        written.append(path)
    return written[0], written[1]


def _problems(
    name: str, tags: set[str], curves: dict[str, dict[str, list[Point]]], said: str
) -> Iterator[str]:
    """Yield how a run's curves differ from what was written."""
    if invented := tags - {*_SCALARS, _END}:
        yield f"{name}: curves that nobody wrote: {sorted(invented)}"
    for tag, of_runs in curves.items():
        whole, found = of_runs["whole"], of_runs.get(name, [])
        if others := [point for point in found if point not in whole]:
            yield f"{name}: {tag} has {others[:2]}"
        elif len(found) < len(whole) and f"{name}/" not in said:
            yield f"{name}: {tag} lacks points, and nothing says so"


class _Board(NamedTuple):
    """A running TensorBoard.

    :ivar said: returns its log.
    """

    address: str
    said: Callable[[], str]

    def ask(self, path: str, form: list[tuple[str, str]] | None = None) -> Any:
        """Return the decoded answer to a request.

        :raises urllib.error.HTTPError: it cannot answer.
        """
        data = urllib.parse.urlencode(form).encode() if form else None
        url = f"{self.address}/data/plugin/scalars/{path}"
        with urllib.request.urlopen(url, data, timeout=60) as answer:  # noqa: S310 - its own
            return json.load(answer)

    def wait_for_all(self, names: set[str]) -> dict[str, set[str]]:
        """Return the names of each run's curves, once all files were read."""

        def read() -> dict[str, set[str]] | None:
            tags = {name: {*found} for name, found in self.ask("tags").items()}
            return tags if {n for n, found in tags.items() if _END in found} >= names else None

        return _awaited(read)

    def curves(self, tag: str, names: list[str]) -> dict[str, list[Point]]:
        """Return one curve of each run that has it."""
        form = [("tag", tag), *(("runs", name) for name in names)]
        found = self.ask("scalars_multirun", form)
        return {name: [tuple(point) for point in points] for name, points in found.items()}


@contextmanager
def _tensorboard(logs: Path, said: Path) -> Iterator[_Board]:
    command = [sys.executable, "-m", "local.stack.tensorboard_server", "--logdir", str(logs)]
    command += ["--host", "127.0.0.1", "--port", "0", "--reload_interval", "1", *_OPTIONS]
    environment = os.environ | {"PYTHONPATH": import_path(), "PYTHONUNBUFFERED": "1"}
    with said.open("wb") as file:
        process = subprocess.Popen(
            command, cwd=REPOSITORY, env=environment, stdout=file, stderr=file
        )
    try:
        address = _awaited(lambda: _ADDRESS.search(said.read_text(errors="replace")))[1]
        yield _Board(address, lambda: said.read_text(errors="replace"))
    finally:
        process.terminate()
        process.wait()


def _awaited(look: Callable[[], Found | None]) -> Found:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (found := look()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"TensorBoard has not read all within {_PATIENCE_SECONDS:.0f} s")
        time.sleep(0.2)
    return found


def _without_checksums() -> Any:
    """Let TensorBoard show everything it can parse, as it does by default."""
    return mock.patch(f"{__name__}._OPTIONS", [_UNCHECKED])


ROWS = (Row("flipped bits of event files", flipped_events, 256, _without_checksums, 256),)
