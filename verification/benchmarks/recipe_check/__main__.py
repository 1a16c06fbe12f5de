"""Shows the faults that today's training defaults prevent, by running without them.

Copy-paste: ``python -m verification.benchmarks.recipe_check --only ratchet``. All of it takes some
six minutes on two cores. Models that take minutes to train stay in the state folder, so that a
repeated call resumes after an interrupted one; everything else is done again.

One JSON object per line on stdout: name, before, after, holds. The last line is a summary. Exit
code: 0 if all hold; 1 if one does not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from pipeline_config.command_line import command_parser
from verification.benchmarks.recipe_check import (
    file_renamed,
    file_revised,
    first_gate,
    leaked_task,
    memorizing,
    paragraphs,
    pooler,
    ratchet,
    retrieval_collapse,
)
from verification.benchmarks.recipe_check.finding import Finding
from verification.checks import add_state_dir

CHECKS: dict[str, Callable[[Path], Finding]] = {
    ratchet.NAME: ratchet.check,
    first_gate.NAME: first_gate.check,
    memorizing.NAME: memorizing.check,
    file_renamed.NAME: file_renamed.check,
    file_revised.NAME: file_revised.check,
    paragraphs.NAME: paragraphs.check,
    leaked_task.NAME: leaked_task.check,
    pooler.NAME: pooler.check,
    retrieval_collapse.NAME: retrieval_collapse.check,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the checks that the command line names; return the exit code."""
    options = _parser().parse_args(argv)
    begun, failed = time.monotonic(), list[str]()
    for name in options.only:
        print(f"{name} …", file=sys.stderr, flush=True)
        finding = CHECKS[name](options.state_dir.resolve())
        print(json.dumps(finding.as_dict()), flush=True)
        if not finding.holds:
            failed.append(name)
    minutes = round((time.monotonic() - begun) / 60, 1)
    print(json.dumps({"checks": len(options.only), "failed": failed, "minutes": minutes}))
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    made = command_parser("verification.benchmarks.recipe_check", __doc__)
    made.add_argument(
        "--only",
        type=_names,
        default=list(CHECKS),
        metavar="NAME[,NAME]",
        help=f"some of {', '.join(CHECKS)} (default: all)",
    )
    add_state_dir(made, "recipe-check", "folder for what is trained")
    return made


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := sorted(set(names) - set(CHECKS)):
        raise argparse.ArgumentTypeError(
            f"there is no check {', '.join(unknown)}; there are {', '.join(CHECKS)}"
        )
    return names


if __name__ == "__main__":
    sys.exit(main())
