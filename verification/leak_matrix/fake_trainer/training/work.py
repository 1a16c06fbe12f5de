"""Pretends to train: no TensorFlow, four steps a second, until it is told to finish.

python -m training.work --folder FOLDER [--fail | --stall]

It touches ``started`` in the folder and trains until the file ``finish`` exists.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from pydantic import BaseModel

from pipeline_store.formats import ExitKind, JobPhase, PhaseName, Progress

STEP_SECONDS = 0.25
STEPS = 14_400
"""An hour of steps, after which it gives up by itself."""

BEGAN = datetime.now(UTC)


def main() -> int:
    """Work until told to finish; return the exit code of the trainer in the same case."""
    parser = argparse.ArgumentParser(prog="python -m training.work", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--fail", action="store_true", help="fail when told to finish")
    parser.add_argument("--stall", action="store_true", help="make no step after the first one")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(ExitKind.PREEMPTED.exit_code))
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for step in range(1, STEPS):
        if step == 1 or not arguments.stall:
            _report(step)
        (arguments.folder / "started").touch()
        if (arguments.folder / "finish").exists():
            print("told to finish", flush=True)
            kind = ExitKind.FAILED if arguments.fail else ExitKind.OK
            return kind.exit_code
        time.sleep(STEP_SECONDS)
    return ExitKind.FAILED.exit_code


def _report(step: int) -> None:
    progress = Progress(step=step, train_steps=STEPS, checkpoint_step=step)
    _replace("REPRETRAIN_PROGRESS_FILE", progress)
    loop = JobPhase(
        name=PhaseName.LOOP, entered=BEGAN, count=step, slowest_loop_seconds=STEP_SECONDS
    )
    _replace("REPRETRAIN_PHASE_FILE", loop)


def _replace(variable: str, content: BaseModel) -> None:
    file = Path(os.environ[variable])
    aside = file.with_suffix(".new")
    aside.write_text(content.model_dump_json())
    aside.replace(file)


if __name__ == "__main__":
    sys.exit(main())
