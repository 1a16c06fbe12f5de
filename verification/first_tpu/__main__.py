"""The first day with a real TPU: from an account to a report on unverified beliefs.

``python -m verification.first_tpu`` rehearses on this machine, with the emulator, at no cost.
``python -m verification.first_tpu --project P --zone Z --store gs://B/P --preset F.toml
--max-cost 5`` checks the installation in the cloud and the bucket, prepares a small partition from
this repository's pages, and runs the contract suite on the smallest TPU, including a training that
loses its TPU and resumes on a second one. It deletes everything it rents, and at the end everything
it has written below the store's ``first-tpu-day``. It writes ``report.md`` and ``report.json``,
which list for each belief whether it held.

Exit code: 0 if nothing failed; 1 if a step failed or a belief is wrong; 2 for an invalid request.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from pipeline_config import ConfigError, PipelineConfig, load_preset
from pipeline_config.command_line import command_parser
from pipeline_store import uris
from verification.first_tpu.beliefs import BELIEFS, Finding, table
from verification.first_tpu.report import as_json, as_markdown
from verification.first_tpu.steps import (
    SUITE_SECONDS,
    TPUS_AT_ONCE,
    Account,
    Day,
    Outcome,
    results_by_name,
    worst_cost,
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.beliefs:
        print("\n".join(table()))
        return 0
    try:
        config = load_preset(options.preset)
        account = _account(options, config)
    except (ConfigError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    cost = worst_cost(account.accelerator_type, account.price)
    worst = 0.0 if account.is_rehearsal else cost
    if worst > account.max_cost:
        print(
            f"error: the day could cost {worst:.2f}: {TPUS_AT_ONCE} {account.accelerator_type} for "
            f"{SUITE_SECONDS / 3600:g} h at {account.price} a chip-hour. That is more than "
            f"--max-cost {account.max_cost:.2f}; raise it, or take a smaller --tpu-type.",
            file=sys.stderr,
        )
        return 2
    day = Day(account, config, options.state_dir.resolve())
    if options.dry_run:
        _announce(day, worst)
        return 0
    outcomes: list[Outcome] = []
    try:
        for outcome in day.run():
            outcomes.append(outcome)
            print(f"{outcome.name:<10} {_in_words(outcome)}", flush=True)
    finally:
        # The report first: it shows whether a TPU may be left.
        _write(day, outcomes, worst)
        if not options.keep:
            uris.delete_tree(day.store)
    wrong = [
        one.statement for one in BELIEFS if one.finding(results_by_name(outcomes)) is Finding.WRONG
    ]
    for statement in wrong:
        print(f"wrong: {statement}")
    return 1 if wrong or any(outcome.passed is False for outcome in outcomes) else 0


def _account(options: argparse.Namespace, config: PipelineConfig) -> Account:
    """Return the account to use.

    :raises ValueError: there is a project without a bucket, or vice versa.
    """
    store = options.store or str(options.state_dir.resolve() / "store")
    if (options.project is not None) != uris.is_cloud(store):
        raise ValueError(
            "--project and --store gs://BUCKET/PREFIX belong together: a TPU VM reads its job from "
            f"a bucket. Received --project {options.project}, --store {options.store}. Without "
            "both it is a rehearsal."
        )
    return Account(
        store=store,
        preset=options.preset,
        project=options.project,
        zone=options.zone,
        accelerator_type=options.tpu_type,
        price=options.tpu_price or config.budget.price_per_chip_hour,
        max_cost=options.max_cost,
    )


def _announce(day: Day, worst: float) -> None:
    print(f"cloud      look at the installation with {day.account.preset}; free")
    print(f"bucket     the store's promises, below {day.store}; some cents at most (an estimate)")
    print(f"partition  prepare this repository's pages, below {day.store}; free")
    print(f"contract   the contract suite, a training included; at most {worst:.2f}")
    print(f"report     {day.folder / 'report.md'}")


def _in_words(outcome: Outcome) -> str:
    if outcome.passed is None:
        return f"left out: {outcome.note}"
    shown = "passed" if outcome.passed else "FAILED"
    return " ".join(filter(None, (shown, f"{outcome.seconds:.0f} s", outcome.note)))


def _write(day: Day, outcomes: Sequence[Outcome], worst: float) -> None:
    page, data = day.folder / "report.md", day.folder / "report.json"
    page.write_text(as_markdown(day.account, outcomes, worst))
    data.write_text(json.dumps(as_json(day.account, outcomes, worst), indent=2))
    print(f"report: {page}")


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("verification.first_tpu", __doc__)
    add = parser.add_argument
    add("--project", help="Google Cloud project; without it the day is rehearsed")
    add("--zone", default="us-central1-a", help="default: %(default)s")
    add("--store", metavar="URI", help="gs://BUCKET/PREFIX that the TPU VM can read and write")
    add(
        "--preset",
        default="bert_base_v5e_smoke",
        help="network, account and image, as Terraform prints them; default: %(default)s",
    )
    add("--tpu-type", default="v5litepod-1", help="default: %(default)s, the cheapest")
    add("--tpu-price", type=float, help="of a chip-hour; default: that of the preset")
    add("--max-cost", type=float, default=0.0, help="what the day may cost at the very most")
    add("--state-dir", type=Path, default=Path(".local/first-tpu"), help="logs and report")
    add("--keep", action="store_true", help="leave what was written to the store")
    add("--dry-run", action="store_true", help="say what would be done and what it could cost")
    add("--beliefs", action="store_true", help="only print the list of beliefs")
    return parser


if __name__ == "__main__":
    sys.exit(main())
