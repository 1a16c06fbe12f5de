"""Runs several sides in turns on one machine, so that other work affects all of them alike."""

from __future__ import annotations

import contextlib
import ctypes.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_REPOSITORY = Path(__file__).parents[3]
TORCH_PYTHON = _REPOSITORY / ".venv-torch/bin/python"
_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "CUDA_VISIBLE_DEVICES": "-1",
    "HF_HUB_OFFLINE": "1",
    "PYTHONWARNINGS": "ignore",
}
_LOG_LINES = 15
_PATIENCE_SECONDS = 20


class SideFailedError(RuntimeError):
    """An error: a side could not run; the message has the end of its log."""


@dataclass(frozen=True)
class SideName:
    """A side: a module such as in :mod:`verification.benchmarks.train.sides`, and its options.

    ``allocator``: whether memory comes from tcmalloc, as PyTorch's guide to tuning on CPUs advises.
    """

    module: str
    shape: str = "mini"
    dtype: str = "float32"
    residual_dtype: str = "float32"
    dropout: float = 0.0
    compiled: bool = False
    allocator: bool = False
    package: str = "verification.benchmarks.train.sides"

    @property
    def uses_torch(self) -> bool:
        """Whether it runs in the PyTorch environment."""
        return self.module in {"hugging_face", "matmul_torch"}

    def __str__(self) -> str:
        """Return a name that is unique among the sides of a contest."""
        words = [self.module.replace("_", " "), self.shape, self.dtype]
        words += ["residuals too"] * (self.residual_dtype == "bfloat16")
        words += [f"dropout {self.dropout}"] * bool(self.dropout)
        words += ["compiled"] * self.compiled
        words += ["tcmalloc"] * self.allocator
        return ", ".join(words)

    def command(self, work: Path, threads: int) -> list[str]:
        """Return the command of its process."""
        return [
            *(str(TORCH_PYTHON) if self.uses_torch else sys.executable, "-m"),
            *(f"{self.package}.{self.module}", "--shape", self.shape),
            *("--dtype", self.dtype, "--residual-dtype", self.residual_dtype),
            *("--dropout", str(self.dropout), "--threads", str(threads)),
            *(["--compile"] if self.compiled else []),
            *("--work", str(work.absolute())),
        ]

    def environment(self) -> dict[str, str]:
        """Return the additional environment variables of its process.

        :raises SideFailedError: tcmalloc is not installed.
        """
        if not self.allocator:
            return {}
        if (library := tcmalloc()) is None:
            raise SideFailedError(
                f"{self}: this machine has no tcmalloc. Install it (Debian and Ubuntu: "
                "libtcmalloc-minimal4), so that the peer is measured at its best."
            )
        return {"LD_PRELOAD": library}


def tcmalloc() -> str | None:
    """Return the tcmalloc library that the system's loader finds, or None."""
    return ctypes.util.find_library("tcmalloc_minimal") or ctypes.util.find_library("tcmalloc")


class SideProcess:
    """A running side, which is idle between requests."""

    def __init__(self, name: SideName, work: Path, threads: int) -> None:
        self._name = name
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            name.command(work, threads),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | _ENVIRONMENT | name.environment(),
            cwd=_REPOSITORY,
            text=True,
        )

    def answer(self) -> dict[str, Any]:
        """Return the next line of its output; the first describes the side.

        :raises SideFailedError: the process ended instead.
        """
        assert self._process.stdout is not None  # noqa: S101 - it is a pipe
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._log.seek(0)
            tail = self._log.read().decode(errors="replace").split("\n")[-_LOG_LINES:]
            raise SideFailedError(f"{self._name}: exit {code}\n" + "\n".join(tail))
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, **request: int) -> dict[str, Any]:
        """Send a request, such as ``steps=4``, and return the answer."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._process.stdin, flush=True)
        return self.answer()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None  # noqa: S101 - it is a pipe
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


@contextlib.contextmanager
def running(name: SideName, work: Path, threads: int) -> Iterator[SideProcess]:
    """Yield a started side; end it with the context."""
    process = SideProcess(name, work, threads)
    try:
        yield process
    finally:
        process.close()


@dataclass(frozen=True)
class Sizes:
    """The length of a contest.

    ``warm_up`` has the first two requests, which are not counted: in the first the side compiles.
    """

    rounds: int = 7
    steps: int = 4
    warm_up: tuple[int, int] = (1, 2)


@dataclass
class Measured:
    """The measurements of a side; lists have a number for each round, seconds are per step."""

    about: dict[str, Any]
    first_request_s: float
    wall_s: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    answers: list[dict[str, Any]] = field(default_factory=list)

    def add(self, answer: dict[str, Any], steps: int) -> None:
        """Add a round."""
        self.wall_s.append(answer["wall_s"] / steps)
        self.cpu_s.append(answer["cpu_s"] / steps)
        self.answers.append(answer)

    @property
    def seconds(self) -> float:
        """The median wall-clock time of a step."""
        return statistics.median(self.wall_s)

    @property
    def best(self) -> float:
        """The wall-clock time of a step in the fastest round."""
        return min(self.wall_s)

    @property
    def cpu_seconds(self) -> float:
        """The median CPU time of a step."""
        return statistics.median(self.cpu_s)

    @property
    def flops_per_second(self) -> float:
        """The median speed of a side that only multiplies matrices."""
        return statistics.median(answer["flops"] / answer["wall_s"] for answer in self.answers)


def contest(
    names: Sequence[SideName], work: Path, threads: int, sizes: Sizes
) -> dict[SideName, Measured]:
    """Measure sides in turns: all once per round, every other round in the opposite order.

    :raises SideFailedError: a side cannot run.
    """
    with contextlib.ExitStack() as stack:
        sides: dict[SideName, SideProcess] = {}
        found: dict[SideName, Measured] = {}
        # One after another, so that none starts while another compiles.
        for name in names:
            sides[name] = stack.enter_context(running(name, work, threads))
            about = sides[name].answer()
            first, second = sizes.warm_up
            found[name] = Measured(about, sides[name].ask(steps=first)["wall_s"])
            sides[name].ask(steps=second)
        order = list(names)
        for _ in range(sizes.rounds):
            for name in order:
                found[name].add(sides[name].ask(steps=sizes.steps), sizes.steps)
            order.reverse()
    return found
