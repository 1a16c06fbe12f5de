"""Puts small mistakes into the code, one at a time, and counts which the tests notice.

Copy-paste::

    python -m verification.mutants trace
    python -m verification.mutants draw --seed 1 --count 64
    python -m verification.mutants run

``trace`` runs the tests of each group of packages and stores in the work folder which lines they
reach; run it again after a change. ``draw`` replaces the list. ``run`` tries the list and resumes
after an interruption: each line of ``results.jsonl`` is a mutant with its outcome in ``make test``
and, if it survived, in the tests that ``make test-all`` adds. The last line printed is a JSON
object with the counts.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path

from pydantic import TypeAdapter

from pipeline_config.command_line import command_parser
from verification.mutants.drawing import Mutant, draw
from verification.mutants.running import TIERS, Outcome, copy_tree, try_mutant
from verification.mutants.tracing import GROUPS, Reach, trace

REPOSITORY = Path(__file__).resolve().parents[2]
LIST = Path(__file__).with_name("mutants.json")
_MUTANTS = TypeAdapter(list[Mutant])


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return 0, or 1 if tests fail or a mutant's location is gone."""
    options = _parser().parse_args(arguments)
    match options.command:
        case "trace":
            return _trace(options)
        case "draw":
            reach = _reach(options)
            drawn = draw(reach, options.tree, count=options.count, seed=options.seed)
            options.list.write_bytes(_MUTANTS.dump_json(drawn, indent=1) + b"\n")
            print(f"{len(drawn)} mutants in {options.list}")
            return 0
    return _run(options)


def _trace(options: argparse.Namespace) -> int:
    codes = {
        group: trace(options.tree, group, options.work / f"{group}.coverage", options.pytest)
        for group in options.group or GROUPS
    }
    failed = [group for group, code in codes.items() if code]
    if failed:
        print(f"Tests failed in {', '.join(failed)}; they will not be used.", file=sys.stderr)
    return int(bool(failed))


def _run(options: argparse.Namespace) -> int:
    results_path = options.work / "results.jsonl"
    lines = results_path.read_text().splitlines() if results_path.exists() else []
    results = {line["mutant"]: line for line in map(json.loads, lines)}
    reach = _reach(options)
    copy = copy_tree(options.tree, options.work / "tree")
    for mutant in _MUTANTS.validate_json(options.list.read_bytes()):
        if mutant.name in results:
            continue
        try:
            tried = try_mutant(mutant, options.tree, copy, reach)
        except LookupError as error:
            print(error, file=sys.stderr)
            return 1
        tiers = {tier: found.model_dump(mode="json") for tier, found in tried.items()}
        line = results[mutant.name] = {"mutant": mutant.name, "group": mutant.group, **tiers}
        with results_path.open("a") as file:
            print(json.dumps(line), file=file)
        print(json.dumps(line), file=sys.stderr, flush=True)
    counts = Counter(map(_killer, results.values()))
    print(json.dumps({"mutants": len(results), "killed_by": dict(counts)}))
    return 0


def _killer(line: dict[str, dict[str, str]]) -> str:
    killed = (tier for tier in TIERS if line.get(tier, {}).get("outcome") == Outcome.KILLED)
    return next(killed, "nobody")


def _reach(options: argparse.Namespace) -> Reach:
    return Reach([options.work / f"{group}.coverage" for group in GROUPS])


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.mutants", __doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    tracing = commands.add_parser("trace", help="find out which tests reach which lines")
    tracing.add_argument("--group", choices=GROUPS, action="append", help="default: all")
    tracing.add_argument(
        "pytest", nargs="*", help="after --, arguments of pytest: -- -k 'not long'"
    )
    drawing = commands.add_parser("draw", help="draw mutants from the lines that tests reach")
    drawing.add_argument("--seed", type=int, default=1, help="default: 1")
    drawing.add_argument("--count", type=int, default=64, help="default: 64")
    running = commands.add_parser("run", help="try the mutants of the list")
    for command in (tracing, drawing, running):
        command.add_argument(
            "--work", type=Path, default=Path(".local/mutants"), help="default: .local/mutants"
        )
        command.add_argument("--tree", type=Path, default=REPOSITORY, help="default: this checkout")
    for command in (drawing, running):
        command.add_argument("--list", type=Path, default=LIST, help=f"default: {LIST.name}")
    return parser


if __name__ == "__main__":
    sys.exit(main())
