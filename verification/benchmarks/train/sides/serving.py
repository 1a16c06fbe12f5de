"""Serves a side: builds it, then runs steps on request; uses only the standard library.

A request is a line of JSON on stdin, the answer is one on stdout. The process is idle in between,
so that sides can take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol


class Side(Protocol):
    """A program to measure."""

    about: dict[str, Any]
    """Versions and sizes that the result includes."""

    def run(self, steps: int) -> dict[str, Any]:
        """Run steps; return their results."""

    def profile(self, steps: int) -> dict[str, float]:
        """Return the milliseconds of a step by kind of operation."""


def main(build: Callable[[argparse.Namespace], Side]) -> int:
    """Serve one side until stdin ends; return the exit status."""
    options = _parser().parse_args()
    # As many cores as threads, so that no library uses more than its share.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: options.threads])
    os.environ["OMP_NUM_THREADS"] = str(options.threads)
    # Libraries print to stdout, so the answers use a separate stream.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    side = build(options)
    print(json.dumps(side.about), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        if "profile" in request:
            print(json.dumps(side.profile(request["profile"])), file=answers)
        else:
            print(json.dumps(_timed(side, request["steps"])), file=answers)
    return 0


def _timed(side: Side, steps: int) -> dict[str, Any]:
    wall, cpu = time.perf_counter(), time.process_time()
    found = side.run(steps)
    return {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu} | found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser()
    parser.add_argument("--shape", default="mini")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--residual-dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--compile", action="store_true", help="PyTorch: torch.compile")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--work", type=Path, help="what verification.benchmarks.train.prepare made")
    return parser
