"""Measures smaller models of a published encoder's classifiers on two tasks, and judges them.

``python -m verification.compress_check --encoder FOLDER --state-dir .local/compress-check``

Prints one JSON object per line: for each model ``parameters``, ``megabytes``, ``p50_ms``,
``accuracy``, ``interval``, ``agreement``; then the criteria. Measurements stay in the state folder,
so that the same command resumes. Exit code: 0 if all criteria hold; 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline_config.command_line import command_parser
from verification.checks import add_state_dir
from verification.compress_check.laboratory import Laboratory
from verification.compress_check.results import criteria
from verification.compress_check.texts import BUILDERS


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check; return the exit code."""
    options = _parser().parse_args(argv)
    laboratory = Laboratory(options.state_dir, options.encoder, quick=options.quick)
    failed = 0
    tasks = options.tasks or list(BUILDERS)
    for task in tasks:
        laboratory.measure(task, options.seeds)
        for criterion in criteria(laboratory.results.lines(), task):
            print(json.dumps(criterion.as_dict()), flush=True)
            failed += not criterion.holds
    print(json.dumps({"tasks": tasks, "failed": failed}))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.compress_check", __doc__)
    parser.add_argument("--encoder", type=Path, required=True, help="a Hugging Face folder")
    add_state_dir(parser, "compress-check", "folder for what is made")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a fifth of the texts and one epoch: shows that it works, and no criterion",
    )
    parser.add_argument(
        "--seeds", type=_numbers, default=(1, 2, 3), help="of the parents (default: 1,2,3)"
    )
    parser.add_argument(
        "--task",
        action="append",
        choices=list(BUILDERS),
        dest="tasks",
        help="only this one; may be repeated",
    )
    return parser


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
