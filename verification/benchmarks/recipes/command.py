"""The command line that the comparisons share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline_config.command_line import command_parser
from verification.benchmarks.recipes.trainings import Laboratory, from_lines


def parser(module: str, description: str | None) -> argparse.ArgumentParser:
    """Return a parser with the options that all comparisons have."""
    made = command_parser(module, description)
    made.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    made.add_argument("--steps", type=int, default=400, help="of each training (default: 400)")
    made.add_argument(
        "--seeds", type=_numbers, default=(1, 2, 3), help="of the trainings (default: 1,2,3)"
    )
    made.add_argument(
        "--done",
        type=Path,
        help="what an interrupted call printed; its trainings are not repeated",
    )
    return made


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def laboratory(options: argparse.Namespace) -> Laboratory:
    """Return what trains, as the options say."""
    done = from_lines(options.done.read_text().splitlines()) if options.done else []
    return Laboratory(options.state_dir, options.steps, done)


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table on stderr, beside the JSON lines."""
    lines = [head, ["---"] * len(head), *rows]
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    print(f"\n{text}", file=sys.stderr, flush=True)
