"""Puts small mistakes into the code, one at a time, and counts which the tests notice.

Copy-paste::

    coverage run --source=. -m pytest -p verification.mutants.coverage_plugin -n 0 TESTS
    python -m verification.mutants draw .coverage --seed 1 --count 64
    python -m verification.mutants run --results .local/mutants.jsonl

``run`` goes on where it was interrupted. Each line of the results is a mutant with what came of it
in ``make test``, and in what ``make test-all`` adds if it survived that. The last line that is
printed is a JSON object with the counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from pydantic import TypeAdapter

from verification.mutants.drawing import Mutant, draw
from verification.mutants.running import TIERS, Outcome, copy_tree, try_mutant

REPOSITORY = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.json")
_MUTANTS = TypeAdapter(list[Mutant])


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0, or 1 if a mutant of the list has no place any more."""
    options = _parser().parse_args(arguments)
    if options.command == "draw":
        drawn = draw(options.coverage, REPOSITORY, count=options.count, seed=options.seed)
        options.list.write_bytes(_MUTANTS.dump_json(drawn, indent=1) + b"\n")
        print(f"{len(drawn)} mutants in {options.list}")
        return 0
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    mutants = _MUTANTS.validate_json(options.list.read_bytes())
    results: dict[str, dict[str, str]] = {}
    if options.results.exists():
        lines = map(json.loads, options.results.read_text().splitlines())
        results = {line["mutant"]: line for line in lines}
    copy = copy_tree(options.tree, options.copy)
    for mutant in mutants:
        if mutant.name in results:
            continue
        try:
            found = _outcomes(mutant, copy)
        except LookupError as error:
            print(error, file=sys.stderr)
            return 1
        results[mutant.name] = {"mutant": mutant.name, "group": mutant.group, **found}
        with options.results.open("a") as file:
            print(json.dumps(results[mutant.name]), file=file)
        print(f"{found}  {mutant.name}", file=sys.stderr, flush=True)
    counts = Counter(
        next((tier for tier in TIERS if line.get(tier) == Outcome.KILLED), "nobody")
        for line in results.values()
    )
    print(json.dumps({"mutants": len(results), "killed_by": dict(counts)}))
    return 0


def _outcomes(mutant: Mutant, copy: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    for tier in TIERS:
        found[tier] = str(try_mutant(mutant, copy, tier))
        if found[tier] == Outcome.KILLED:
            break
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verification.mutants",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("draw", help="draw mutants from the lines that tests reach")
    drawing.add_argument("coverage", type=Path, help="data file of coverage.py")
    drawing.add_argument("--seed", type=int, default=1, help="default: 1")
    drawing.add_argument("--count", type=int, default=64, help="default: 64")
    running = commands.add_parser("run", help="try the mutants of the list")
    running.add_argument(
        "--results", type=Path, required=True, help="JSON lines; read and added to"
    )
    running.add_argument("--tree", type=Path, default=REPOSITORY, help="default: this checkout")
    running.add_argument(
        "--copy", type=Path, default=Path(".local/mutants"), help="default: .local/mutants"
    )
    for command in (drawing, running):
        command.add_argument("--list", type=Path, default=LIST, help=f"default: {LIST.name}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
