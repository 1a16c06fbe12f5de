"""Runs one schedule and writes its report; the campaign starts one such process per schedule.

``python -m verification.chaos.worker --seed 123 --folder FOLDER``
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path


def main() -> int:
    """Run the command line; return 0 if everything holds that must."""
    parser = argparse.ArgumentParser(prog="python -m verification.chaos.worker")
    parser.add_argument("--seed", type=int, required=True, help="of the schedule")
    parser.add_argument("--folder", type=Path, required=True, help="empty; everything is in it")
    parser.add_argument("--prepared", type=Path, help="the real trainer's data; without it a fake")
    arguments = parser.parse_args()
    folder = arguments.folder.absolute()
    # Airflow reads these when it is imported, in the processes forked later.
    os.environ["AIRFLOW_HOME"] = str(folder / "airflow")
    os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "false"

    from verification.chaos.one import FakeTraining, Training, run_schedule
    from verification.chaos.real import RealTraining
    from verification.chaos.schedule import draw

    real = arguments.prepared is not None
    training: Training = RealTraining.load(arguments.prepared) if real else FakeTraining()
    report = run_schedule(draw(arguments.seed, real=real), folder, training)
    text = json.dumps(report.to_json(), indent=2)
    (folder / "report.json").write_text(text)
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
