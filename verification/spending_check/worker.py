"""Runs one schedule as the chaos check does, and adds the evidence on the bill to its report.

``python -m verification.spending_check.worker --seed 123 --folder FOLDER``; ``--outage`` instead of
a seed: all of Airflow dies in the middle of the training, and returns much later.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

STEPS, STEP_SECONDS = 100, 0.25
"""More and longer steps than in the chaos check: in a training of seconds, the start of a process
and the detection of its end would take several percent."""


def main() -> int:
    """Run the command line; return 0 if everything holds that must."""
    parser = argparse.ArgumentParser(prog="python -m verification.spending_check.worker")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="of the schedule")
    what.add_argument("--outage", action="store_true", help="the outage instead")
    parser.add_argument("--folder", type=Path, required=True, help="empty; everything is in it")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    # Airflow reads these when it is imported, in the processes forked later.
    os.environ["AIRFLOW_HOME"] = str(folder / "airflow")
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "false"
    report = _outage(folder) if arguments.outage else _schedule(folder, arguments.seed)
    (folder / "report.json").write_text(json.dumps(report, indent=2))
    return 1 if report["problems"] else 0


def _schedule(folder: Path, seed: int) -> dict[str, Any]:
    from verification.chaos.fake_training import chain
    from verification.chaos.one import FakeTraining, run_schedule
    from verification.chaos.schedule import draw
    from verification.spending_check.evidence import collect

    training = FakeTraining({"training.train_steps": STEPS}, chain.final(STEPS).hex(), STEP_SECONDS)
    report = run_schedule(draw(seed), folder, training)
    return report.to_json() | {"evidence": collect(folder, report.billed_chip_seconds)}


def _outage(folder: Path) -> dict[str, Any]:
    from verification.spending_check.outage import run_outage

    return run_outage(folder)


if __name__ == "__main__":
    sys.exit(main())
