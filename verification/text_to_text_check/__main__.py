"""Checks that our span pretraining pays on three text-to-text tasks, and that PyTorch agrees.

``python -m verification.text_to_text_check --torch .venv-torch/bin/python``

A tiny T5 is pretrained on installed docstrings. It and random weights are fine-tuned on each task,
and on one task it is also fine-tuned in PyTorch. Prints one JSON object per line: one per training;
then the criteria, with ``name``, ``value``, ``limit`` and ``holds``. Measurements stay in the state
folder, so that the same command resumes. Exit code: 0 if all criteria hold; 1 if one does not, or a
command failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline_config.command_line import command_parser
from verification.checks import add_state_dir
from verification.text_to_text_check.laboratory import Laboratory, say
from verification.text_to_text_check.results import PRETRAINED, RANDOM, criteria, show
from verification.text_to_text_check.texts import FIRST_LINE, PACKAGE, RESTORE

TASKS = (PACKAGE, FIRST_LINE, RESTORE)
COMPARED = PACKAGE
"""The task on which PyTorch also trains."""
_SEEDS = (1, 2, 3, 4, 5)
_QUICK_SEEDS = (1, 2)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check; return the exit code."""
    options = _parser().parse_args(argv)
    seeds = options.seeds or (_QUICK_SEEDS if options.quick else _SEEDS)
    laboratory = Laboratory(options.state_dir, quick=options.quick)
    tasks = options.tasks or list(TASKS)
    try:
        for line in laboratory.baselines():
            show(line)
        laboratory.measure_pretraining()
        # Seed by seed, so that an interrupted check has results of each task.
        for seed in seeds:
            for task in tasks:
                for start in (PRETRAINED, RANDOM):
                    laboratory.measure(task, start, seed)
            if options.torch is not None and COMPARED in tasks:
                laboratory.measure_pytorch(COMPARED, seed, options.torch)
    except subprocess.CalledProcessError as error:
        say(f"{' '.join(map(str, error.cmd[1:3]))} ended with code {error.returncode}.")
        return 1
    found = list(criteria(laboratory.results.lines(), tasks))
    for line in found:
        show(line)
    return 0 if all(line.get("holds", True) for line in found) else 1


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.text_to_text_check", __doc__)
    parser.add_argument("--torch", type=Path, help="Python that has PyTorch; without: not compared")
    add_state_dir(parser, "text-to-text-check", "folder for what is made")
    parser.add_argument(
        "--quick", action="store_true", help="few texts and steps: shows that it works, no more"
    )
    parser.add_argument("--seeds", type=_numbers, help="of the fine-tunings (default: 1,2,3,4,5)")
    parser.add_argument(
        "--task", action="append", choices=TASKS, dest="tasks", help="only this; may be repeated"
    )
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
