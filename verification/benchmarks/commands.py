"""Results, progress and command lines of benchmarks."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def print_result(**values: Any) -> None:
    """Print one result as one JSON object on a line of its own."""
    print(json.dumps(values), flush=True)


def say(line: str) -> None:
    """Print a line about the progress to stderr, where no results are."""
    print(line, file=sys.stderr, flush=True)


def contest_parser(
    prog: str, description: str | None, rows: Iterable[str], quick: str
) -> argparse.ArgumentParser:
    """Return the command line parser of a benchmark that measures sides against each other.

    :param rows: the rows that can be measured separately.
    :param quick: the help text of ``--quick``.
    """
    parser = argparse.ArgumentParser(
        prog=prog,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--state-dir", type=Path, default=Path(".local"), help="default: .local")
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument(
        "--only", action="append", choices=list(rows), help="only these rows; may be repeated"
    )
    parser.add_argument("--threads", type=int, default=2, help="of each side (default: 2)")
    return parser
