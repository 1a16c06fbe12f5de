"""Injects random faults into runs and compares the bill of each with independent accounts.

Copy-paste: ``python -m verification.spending_check --seeds 10``. Results for the same code are
reused. Each line is JSON; the last one is the summary.

Exit code: 0 if each bill obeys the rules, and each bill that was forged on purpose was detected.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from local.stack.paths import StackError
from pipeline_config.command_line import command_parser
from verification.chaos.campaign import Campaign, Item
from verification.checks import add_state_dir, code_version
from verification.spending_check import calculator
from verification.spending_check.events import entries
from verification.spending_check.judge import (
    FORGERIES,
    Json,
    can_forge,
    forged,
    judge,
    training_of,
)

WORKER = "verification.spending_check.worker"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the schedules that are not done yet, and judge all; return the exit code."""
    options = _parser().parse_args(argv)
    # So that a campaign that is ended also ends its schedules and their VMs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        version = code_version()
    except StackError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    folder = options.state_dir.resolve() / version.replace("+", "-")
    campaign = Campaign(folder, options.parallel, WORKER)
    with contextlib.redirect_stdout(sys.stderr):
        reports = campaign.run([Item(seed, real=False) for seed in range(options.seeds)])
    reports.append(_outage(campaign))
    known = [report["evidence"] for report in reports if "evidence" in report]
    answers = iter(_ask(options.oracle, [entries(training_of(one)) for one in known]))
    numbers: list[Json] = []
    cases: list[tuple[Json, Json]] = []
    for report in reports:
        evidence = report.get("evidence")
        line: Json = {"run": report.get("seed", "outage"), "problems": list(report["problems"])}
        if evidence is not None:
            answer = next(answers)
            verdict = judge(evidence, answer)
            # The run's own problems are the chaos check's concern: its bill must be right anyway.
            line |= {"problems": verdict.problems, **verdict.numbers, "run_was": line["problems"]}
            cases.append((evidence, answer))
        if "before" in report:
            line |= _told_meanwhile(report, line["problems"])
        _say(line)
        numbers.append(line)
    controls = [_control(name, cases) for name in FORGERIES]
    for control in controls:
        _say(control)
    summary = _summary(numbers, controls)
    _say(summary)
    is_found = summary["double_counts_found"] == summary["double_counts"]
    return 0 if is_found and not summary["wrong"] else 1


def _outage(campaign: Campaign) -> Json:
    """Return the report of the outage, which is run once."""
    folder = campaign.folder / "outage"
    path = folder / "report.json"
    if not path.exists():
        campaign.run_one_more(folder, ["--outage"])
    if not path.exists():
        return {"problems": [f"the outage broke off; see {folder / 'worker.log'}"]}
    report: Json = json.loads(path.read_text())
    return report


def _told_meanwhile(report: Json, problems: list[str]) -> Json:
    """Compare the totals while Airflow was dead with the bills; return the cost then and now."""
    before, after = report["before"]["totals"], report["evidence"]["totals"]
    sums = sum(entry["chip_seconds"] for entry in report["before"]["entries"])
    if abs(sums - before["chip_seconds"]) > 1e-3:
        problems.append(f"while Airflow was dead, the totals were {before}, the bills {sums:.1f}")
    return {"cost_before": round(before["cost"], 4), "cost_after": round(after["cost"], 4)}


def _ask(python: Path, trainings: list[list[Json]]) -> list[Json]:
    """Return the calculator's answers; a training without a start is skipped.

    :raises subprocess.CalledProcessError: it fails.
    """
    asked = [training for training in trainings if training]
    done = subprocess.run(
        [str(python), calculator.__file__],
        input=json.dumps(asked),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    answers = iter(json.loads(done.stdout.splitlines()[-1]))
    return [next(answers) if training else {} for training in trainings]


def _control(name: str, cases: Sequence[tuple[Json, Json]]) -> Json:
    """Forge the bill of each run where that is possible; all forgeries must be detected."""
    chosen = [case for case in cases if can_forge(case[0], name) and not judge(*case).problems]
    found = [case for case in chosen if judge(forged(case[0], name), case[1]).problems]
    return {"control": name, "bills": len(chosen), "found": len(found)}


def _summary(numbers: Sequence[Json], controls: Sequence[Json]) -> Json:
    seeds = [line for line in numbers if line["run"] != "outage"]
    return {
        "seeds": len(seeds),
        "wrong": [line["run"] for line in numbers if line["problems"]],
        "worst_sum_off": max((line.get("sum_off", 0.0) for line in numbers), default=0.0),
        "worst_unattributed": max((line.get("unattributed", 0.0) for line in numbers), default=0.0),
        "compared_with_oracle": sum(line.get("compared", False) for line in seeds),
        "worst_share_off": max((abs(line.get("share_off", 0.0)) for line in numbers), default=0.0),
        "with_lost_steps": sum(line.get("lost_seconds", 0.0) > 0 for line in seeds),
        "double_counts": sum(control["bills"] for control in controls),
        "double_counts_found": sum(control["found"] for control in controls),
    }


def _say(content: Mapping[str, Any]) -> None:
    print(json.dumps(content), flush=True)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.spending_check", __doc__)
    add = parser.add_argument
    add("--seeds", type=int, default=50, help="schedules of chaos (default: %(default)s)")
    add("--parallel", type=int, default=6, help="schedules at a time (default: %(default)s)")
    add(
        "--oracle",
        type=Path,
        default=Path(".venv-goodput/bin/python"),
        help="Python that has ml-goodput-measurement (default: %(default)s)",
    )
    add_state_dir(parser, "spending-check", "folder of reports and schedules")
    return parser


if __name__ == "__main__":
    sys.exit(main())
