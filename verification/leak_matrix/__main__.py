"""Runs the leak matrix: every known way to leak a TPU, on a real Airflow.

Copy-paste: ``python -m verification.leak_matrix --list``,
``python -m verification.leak_matrix --only run-marked-failed``

Exit code: 0 if nothing is left anywhere and the expected layers cleaned up; 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence

from local.stack.paths import StackError
from pipeline_config.command_line import command_parser
from verification.checks import add_state_dir
from verification.leak_matrix.catalogue import SCENARIOS
from verification.leak_matrix.layers import REMOVABLE, Layer
from verification.leak_matrix.results import Journal, Result, summary, table
from verification.leak_matrix.runner import Case, Runner
from verification.leak_matrix.scenario import Scenario, Subject
from verification.leak_matrix.session import session


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = _parser().parse_args(argv)
    chosen = _chosen(arguments.only, arguments.dag)
    if arguments.list:
        print(_listing(chosen))
        return 0
    without = Layer(arguments.without) if arguments.without else None
    begun = time.monotonic()
    try:
        results = _run(arguments, _cases(chosen, arguments.control, without), without)
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    minutes = round((time.monotonic() - begun) / 60, 1)
    print(f"\n{table(results)}\n")
    numbers = summary(results, without=without, seed=arguments.seed, minutes=minutes)
    print(json.dumps(numbers))
    return 1 if numbers["failed"] or numbers["nodes_left"] else 0


def _run(arguments: argparse.Namespace, cases: list[Case], without: Layer | None) -> list[Result]:
    state_dir = arguments.state_dir.resolve()
    journal = Journal(state_dir / "results.jsonl")
    layer = without or ""

    def key(case: Case) -> tuple[str, str, str]:
        return case.scenario.id, case.kind, layer

    done = {} if arguments.fresh else journal.read()
    to_do = [case for case in cases if key(case) not in done or not done[key(case)].passed]
    if to_do:
        print(f"{len(to_do)} of {len(cases)} cases to run, seed {arguments.seed}", flush=True)
        # Each run of the matrix starts with an empty Airflow: only results are kept.
        scenarios = [*{case.scenario.id: case.scenario for case in to_do}.values()]
        with session(state_dir / "stack", without, fresh=True, scenarios=scenarios) as opened:
            runner = Runner(opened, journal, seed=arguments.seed, jobs=arguments.jobs, say=_say)
            runner.run(to_do)
    found = journal.read()
    return [found[key(case)] for case in cases if key(case) in found]


def _cases(chosen: list[Scenario], control: bool, without: Layer | None) -> list[Case]:
    cases = [Case(scenario) for scenario in chosen]
    if control and without is None:
        cases += [Case(scenario, is_control=True) for scenario in chosen if scenario.control]
    return cases


def _chosen(only: list[str], dag: str) -> list[Scenario]:
    known = {scenario.id: scenario for scenario in SCENARIOS}
    unknown = sorted(set(only) - known.keys())
    if unknown:
        sys.exit(f"no scenario is called {unknown[0]!r}; `--list` shows them")
    if only:
        return [known[name] for name in only]
    return [scenario for scenario in SCENARIOS if scenario.subject == dag]


def _listing(chosen: list[Scenario]) -> str:
    width = max(len(scenario.id) for scenario in chosen)
    return "\n".join(
        f"{scenario.id:<{width}}  {scenario.expected:<8}  {scenario.bound:>4} polls  "
        f"{scenario.title}{' [control too]' if scenario.control else ''}"
        for scenario in chosen
    )


def _say(line: str) -> None:
    print(line, flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.leak_matrix", __doc__)
    add = parser.add_argument
    add("--list", action="store_true", help="show the scenarios and stop")
    add(
        "--only",
        type=lambda text: text.split(","),
        default=[],
        metavar="ID[,ID]",
        help="only these scenarios",
    )
    add(
        "--dag",
        choices=[str(subject) for subject in Subject],
        default=str(Subject.REPRETRAINING),
        help="the scenarios of this DAG, unless --only names some (default: %(default)s)",
    )
    add("--seed", type=int, default=1, help="of order and moments (default: %(default)s)")
    add("--jobs", type=int, default=4, help="scenarios at a time (default: %(default)s)")
    add("--without", choices=[str(layer) for layer in REMOVABLE], help="switch a layer off")
    add("--fresh", action="store_true", help="run again what has passed before")
    add(
        "--no-control",
        dest="control",
        action="store_false",
        help="leave out the control DAG",
    )
    add_state_dir(parser, "leak-matrix", "folder for results and the stack")
    return parser


if __name__ == "__main__":
    sys.exit(main())
