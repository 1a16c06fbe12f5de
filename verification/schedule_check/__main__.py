"""Lets partitions arrive in every way, at once and with accidents, and proves each is learned once.

Copy-paste: ``python -m verification.schedule_check``. A day lasts a minute in it; the whole check
takes up to an hour. Seven days arrive by schedule and by asset event, five by a backfill in which
the scheduler is killed; a backfill is canceled, a day is run again, and three kinds of runs
overlap.

Exit code: 0 if the registry is consistent, every partition was learned once and no TPU is left.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections.abc import Sequence

from local.stack.airflow_api import AirflowApiError
from local.stack.paths import StackError
from local.stack.stack import Stack
from pipeline_config.command_line import command_parser
from verification.checks import add_state_dir
from verification.schedule_check.story import Story
from verification.schedule_check.verdict import judge
from verification.schedule_check.world import CheckError, Watcher, world


def main(argv: Sequence[str] | None = None) -> int:
    """Run the check; return the exit code."""
    options = _parser().parse_args(argv)
    began = time.monotonic()

    def say(line: str) -> None:
        print(f"[{time.monotonic() - began:5.0f} s] {line}", flush=True)

    state_dir = options.state_dir.resolve()
    # Results of an earlier check would be counted as well.
    Stack(state_dir / "stack", say=lambda line: None).down()
    shutil.rmtree(state_dir, ignore_errors=True)
    try:
        with world(state_dir, say) as opened, Watcher(opened.store.root) as watcher:
            expected = Story(opened).tell()
            verdict = judge(
                opened,
                expected,
                trainings_at_once=watcher.most,
                minutes=(time.monotonic() - began) / 60,
            )
            print(f"\n{opened.describe()}\n")
    except (CheckError, StackError, AirflowApiError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for problem in verdict.problems:
        print(f"PROBLEM: {problem}")
    print(json.dumps(verdict.as_json()))
    return 0 if verdict.passed else 1


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.schedule_check", __doc__)
    add_state_dir(parser, "schedule-check", "folder of the stack, emptied first")
    return parser


if __name__ == "__main__":
    sys.exit(main())
