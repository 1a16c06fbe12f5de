"""Runs a TPU task group under random, seeded faults and counts TPUs left and work lost.

python -m verification.chaos                 200 schedules with a fake trainer, 10 with the real one
python -m verification.chaos --seed 123   one of them, with its schedule; --real: real trainer
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sys
import time
from pathlib import Path

from pipeline_config.command_line import command_parser
from verification.chaos.campaign import Campaign, Item, summary
from verification.chaos.schedule import draw


def main(argv: list[str] | None = None) -> int:
    """Run the command line; 0 when nothing was left, lost or unclear."""
    arguments = _parser().parse_args(argv)
    # So that a campaign that is ended also ends its schedules and their VMs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    folder = arguments.state_dir.absolute()
    if arguments.seed is not None:
        return _one(folder, arguments)
    if arguments.fresh or (folder / "summary.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
    items = [Item(seed, real=True) for seed in range(arguments.real_schedules)]
    items += [Item(seed, real=False) for seed in range(arguments.schedules)]
    began = time.monotonic()
    reports = Campaign(folder, arguments.parallel).run(items)
    totals = summary(reports) | {"seconds": round(time.monotonic() - began)}
    (folder / "summary.json").write_text(json.dumps(totals))
    print(json.dumps(totals))
    return 1 if totals["failing_seeds"] else 0


def _one(folder: Path, arguments: argparse.Namespace) -> int:
    item = Item(arguments.seed, real=arguments.real)
    print(f"Schedule {item.name}:")
    for fault in draw(item.seed, real=item.real).faults:
        print(f"  {fault}")
    folder = folder / "single"
    shutil.rmtree(folder, ignore_errors=True)
    (report,) = Campaign(folder, 1).run([item])
    print(json.dumps(report, indent=2))
    return 1 if report["problems"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "verification.chaos",
        __doc__,
        epilog="See docs/evidence/chaos.md. A campaign that was interrupted goes on where it was.",
    )
    add = parser.add_argument
    add("--seed", type=int, help="run this schedule alone and print it")
    add("--real", action="store_true", help="with --seed: of the real trainer")
    add("--schedules", type=int, default=200, help="with the fake trainer; default: %(default)s")
    add("--real-schedules", type=int, default=10, help="with the real one; default: %(default)s")
    add("--parallel", type=int, default=6, help="schedules at a time; default: %(default)s")
    add("--state-dir", type=Path, default=Path(".local/chaos"), help="default: %(default)s")
    add("--fresh", action="store_true", help="forget an interrupted campaign")
    return parser


if __name__ == "__main__":
    sys.exit(main())
