"""Reads the result as the evaluator does; the second job on the same TPU."""

from __future__ import annotations

import argparse
import sys

from pipeline_store.formats import PhaseName, TrainingResult
from pipeline_store.layout import RunLayout
from trained_models.artifacts import result_checkpoint
from training.runtime.job import run_job
from training.runtime.phases import phase

from .train import patiently


def main() -> int:
    """Run the command line and return the process exit code."""
    parser = argparse.ArgumentParser(prog="python -m training.evaluate")
    parser.add_argument("--run", required=True, help="run folder")
    run = RunLayout(parser.parse_args().run)
    return run_job(lambda: _evaluate(run))


def _evaluate(run: RunLayout) -> None:
    with phase(PhaseName.EVALUATION):
        patiently(lambda: result_checkpoint(run.training.root))
        result = patiently(lambda: TrainingResult.load(run.training.result))
    print(f"weights {result.weights_sha256}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
