"""Print the metrics of a training, or draw its learning curve.

``python -m training.metrics STORE/runs/KEY [--csv] [--plot FILE.png]``
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import sys
from pathlib import Path

from pipeline_store.layout import RunLayout
from trained_models import metric_files
from trained_models.errors import UserError
from trained_models.metric_files import FIELDS, Record
from training.runtime.job import run_job


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = _parser().parse_args(argv)
    return run_job(lambda: show(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.metrics",
        description="Prints what a training has reported, one JSON object a line, from step 0 to "
        "the newest. Steps that were done again after an interruption or a rollback appear once.",
        epilog="exit codes: 0 done, 40 argument, 41 damaged metrics, 45 any other failure",
    )
    parser.add_argument("run", metavar="RUN_URI", help="run folder, while it trains or afterwards")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--csv", action="store_true", help="comma-separated values, with a header")
    form.add_argument(
        "--plot",
        type=Path,
        metavar="FILE",
        help="draw training and held-out loss by step instead, as FILE's suffix says: .png, .svg, "
        ".pdf; needs matplotlib",
    )
    return parser


def show(arguments: argparse.Namespace) -> None:
    """Print or draw the metrics.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    folder = RunLayout(arguments.run).training.metrics
    records = metric_files.read(folder)
    if not records:
        raise UserError(
            f"There are no metrics in {folder}. Give the folder of a run that trains or has "
            "trained, such as STORE/runs/KEY."
        )
    if arguments.plot is not None:
        # Imported here, as the training environment has no matplotlib.
        try:
            from training.reporting import learning_curve
        except ModuleNotFoundError as error:
            raise UserError(
                f"--plot needs {error.name}, which is not installed here. Install it, draw where "
                "it is, as the run's folder is all that is needed, or take --csv."
            ) from error
        learning_curve.draw(records, arguments.plot)
        return
    try:
        _print(records, as_csv=arguments.csv)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader, such as `head`, has closed the pipe; Python must not flush into it at exit.
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115 - for the rest of the process


def _print(records: list[Record], *, as_csv: bool) -> None:
    if not as_csv:
        for record in records:
            print(json.dumps(record))
        return
    # One table for all kinds: a field that several kinds have is one column.
    named = [name for fields in FIELDS.values() for name in fields]
    columns = ["kind", "step", "time", *dict.fromkeys(named)]
    writer = csv.DictWriter(sys.stdout, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)


if __name__ == "__main__":
    sys.exit(main())
