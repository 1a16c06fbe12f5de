"""Makes trainings hang or be slow, and counts which of them the agents consider hung.

Copy-paste: ``python -m verification.hang_check --healthy 10``. With all 100 healthy trainings it
takes some hours on two cores; results for the same code are reused. Each line is JSON.

Exit code: 0 if each hang was found, explained and survived, with no false alarm; else 1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from local.stack.paths import StackError
from pipeline_config.command_line import command_parser
from verification.checks import add_state_dir, code_version
from verification.hang_check.hangs import HANGS, run_hang
from verification.hang_check.healthy import PAUSED, kind_of, run_healthy
from verification.hang_check.prepared import Prepared, prepare
from verification.hang_check.results import Journal, Result, has_passed, summary
from verification.hang_check.trial import TrialError

Key = tuple[str, str]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the trials that are not done yet; return the exit code."""
    options = _parser().parse_args(argv)
    state_dir = options.state_dir.resolve()
    try:
        version = code_version()
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    journal = Journal(state_dir / "results.jsonl", f"{version} slower {options.slower:g}")
    # By version: with other code, the records, the weights and the code copy differ.
    prepared = prepare(state_dir / "prepared" / version.replace("+", "-"))
    known = {result.key: result for result in journal.read()}
    done = []
    for key, run in _trials(options, state_dir / "trial", prepared):
        result = known.get(key)
        if result is None or not result.passed:
            result = _try(key, run)
            journal.add(result)
        _say(asdict(result))
        done.append(result)
    numbers = summary(done)
    _say(numbers)
    return 0 if has_passed(numbers, [one for one in done if one.kind == "control"]) else 1


def _trials(
    options: argparse.Namespace, folder: Path, prepared: Prepared
) -> Iterator[tuple[Key, Callable[[], Result]]]:
    slower = options.slower
    for hang in HANGS:
        if not options.only or hang.name in options.only:
            yield (
                ("hang", hang.name),
                lambda hang=hang: run_hang(hang, folder, prepared, slower=slower),  # type: ignore[misc]
            )
    for number in range(options.healthy):
        for kind in ("healthy", "control") if kind_of(number) in PAUSED else ("healthy",):
            yield (
                (kind, f"{kind_of(number)}-{number}"),
                lambda number=number, kind=kind: run_healthy(  # type: ignore[misc]
                    number, folder, prepared, slower=slower, is_control=kind == "control"
                ),
            )


def _try(key: Key, run: Callable[[], Result]) -> Result:
    try:
        return run()
    except TrialError as error:
        return Result(*key, False, [f"the trial broke off: {error}"], {"alarms": 0})


def _say(content: Mapping[str, object]) -> None:
    print(json.dumps(content), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.hang_check", __doc__)
    add = parser.add_argument
    add("--healthy", type=int, default=100, help="healthy trainings (default: %(default)s)")
    add(
        "--slower",
        type=float,
        default=1.0,
        help="factor on all limits and pauses, for a machine that is busy (default: 1)",
    )
    add("--only", action="append", help="only this hang; give it again for more")
    add_state_dir(parser, "hang-check", "folder of results and trials")
    return parser


if __name__ == "__main__":
    sys.exit(main())
