"""Kills only the scheduler's main process, and shows that every run continues by itself.

Copy-paste: ``python -m verification.scheduler_kill_check --seeds 1 --moments training``. All five
moments with ten seeds each take 70 minutes on two cores; results for the same code are reused.

Exit code: 0 if all runs continued within 90 s, succeeded, and no TPU is left; 1 otherwise, also if
a try failed and the next one did not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from local.stack.airflow_api import AirflowApiError
from local.stack.paths import StackError
from local.stack.stack import Stack
from pipeline_config.command_line import command_parser
from verification.checks import add_state_dir, code_version
from verification.scheduler_kill_check.moments import BY_NAME, MOMENTS, Moment
from verification.scheduler_kill_check.results import (
    Journal,
    Key,
    Result,
    broken_off,
    summary,
    to_do,
)
from verification.scheduler_kill_check.trial import World, clean_up, run_trial, world


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(argv)
    begun = time.monotonic()
    state_dir = options.state_dir.resolve()
    mended = not options.without_mend
    # Seed by seed, so that an interrupted check has covered all moments.
    seeds = range(1, options.seeds + 1)
    wanted = [(moment.name, seed, mended) for seed in seeds for moment in options.moments]
    try:
        journal = Journal(state_dir / "results.jsonl", code_version())
        _run(wanted, state_dir / "stack", journal, mended=mended)
    except (StackError, AirflowApiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    results = [result for result in journal.read() if result.key in set(wanted)]
    minutes = round((time.monotonic() - begun) / 60, 1)
    numbers = summary(results, without_mend=not mended, minutes=minutes)
    print(json.dumps(numbers))
    return 1 if numbers["failed"] else 0


def _run(wanted: Sequence[Key], state: Path, journal: Journal, *, mended: bool) -> None:
    if others := journal.others():
        _say(f"{others} results of other versions of the code are left out")
    left = to_do(wanted, journal.read())
    _say(f"{len(left)} of {len(wanted)} kills to do")
    if not left:
        return
    # Each start has an empty Airflow: only results are reused.
    Stack(state, say=lambda line: None).down()
    shutil.rmtree(state, ignore_errors=True)
    with world(state, mended=mended, say=_say) as opened:
        for name, seed, _ in left:
            result = _try(opened, BY_NAME[name], seed, journal)
            _say(_line(result))
            clean_up(opened, result)


def _try(opened: World, moment: Moment, seed: int, journal: Journal) -> Result:
    """Make one try, and store its result even if it breaks off."""
    try:
        result = run_trial(opened, moment, seed)
    except Exception as error:
        delay = moment.delay(seed)
        journal.add(broken_off(moment.name, seed, mended=opened.mended, delay=delay, error=error))
        raise
    journal.add(result)
    return result


def _line(result: Result) -> str:
    """Return one line on how a run continued."""
    went = "did not go on"
    if result.resumed_seconds is not None:
        went = f"went on after {result.resumed_seconds:.0f} s"
    interrupted = ", ".join(result.interrupted) or "no task"
    said = "; ".join(result.problems) or f"ended {result.outcome}"
    held = "rows held" if result.held_runs else "no rows held"
    return f"{result.moment}/{result.seed}: {held}, {interrupted} interrupted, {went}; {said}"


def _say(line: str) -> None:
    print(line, flush=True)


def _moments(text: str) -> list[Moment]:
    unknown = sorted(set(text.split(",")) - BY_NAME.keys())
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no moment is called {unknown[0]!r}; there are: {', '.join(BY_NAME)}"
        )
    return [BY_NAME[name] for name in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.scheduler_kill_check", __doc__)
    add = parser.add_argument
    add("--seeds", type=int, default=10, help="kills per moment (default: %(default)s)")
    add(
        "--moments",
        type=_moments,
        default=list(MOMENTS),
        metavar="NAME[,NAME]",
        help=f"some of {', '.join(BY_NAME)} (default: all)",
    )
    add(
        "--without-mend",
        action="store_true",
        help="let left-overs and idle sessions live: the proof that the check can fail",
    )
    add_state_dir(parser, "scheduler-kill-check", "folder for results and the stack")
    return parser


if __name__ == "__main__":
    sys.exit(main())
