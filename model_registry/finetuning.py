"""Runs the parts of a fine-tuning run that need no TPU by hand: plan before, report after.

``python -m model_registry.finetuning plan --run STORE/runs/KEY --store STORE --manifest URI``
``python -m model_registry.finetuning report --run STORE/runs/KEY --store STORE``
"""

from __future__ import annotations

import argparse
import sys

from model_registry.errors import RegistryError
from model_registry.finetuning_plans import make_plan
from pipeline_config import ConfigError, parse_finetuning_config
from pipeline_store import uris
from pipeline_store.formats import FormatError, TaskManifest
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models.downstream.report import write_report
from trained_models.errors import JobError


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    options = _parser().parse_args(argv)
    store = StoreLayout(uris.for_library(options.store))
    run = RunLayout(store.resolve(options.run))
    try:
        if options.command == "plan":
            _plan(store, run, options.manifest)
        else:
            _report(store, run)
    except (RegistryError, ConfigError, FormatError, JobError, FileNotFoundError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m model_registry.finetuning",
        description="Plans a fine-tuning run and reports on it, as the DAG's tasks of these names "
        "do. What is decided or written already stays as it is.",
    )
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--run", required=True, metavar="URI", help="run folder with config.json")
    common.add_argument("--store", required=True, metavar="URI", help="root of the store")
    commands = parser.add_subparsers(dest="command", required=True)
    plan = commands.add_parser(
        "plan", parents=[common], help="decide which models, tasks, rates and seeds are trained"
    )
    plan.add_argument(
        "--manifest",
        required=True,
        action="append",
        metavar="URI",
        help="of a prepared task, as beam_jobs.prepare_task prints it; give it again for more",
    )
    commands.add_parser(
        "report", parents=[common], help="put the trials' results together, as JSON and as a page"
    )
    return parser


def _plan(store: StoreLayout, run: RunLayout, manifests: list[str]) -> None:
    config = parse_finetuning_config(uris.read(run.config), run.config)
    by_task = {TaskManifest.load(store.resolve(uri)).name: uri for uri in manifests}
    plan = make_plan(store, run, config, by_task)
    print(f"{run.finetuning_plan}: {len(plan.trials)} trials")
    for trial in plan.trials:
        print(f"  {trial.trial_id}")


def _report(store: StoreLayout, run: RunLayout) -> None:
    report = write_report(store, run)
    for task in report.tasks:
        for name, metric in task.metrics.items():
            majority = f"{task.majority[name]:.4f}" if name in task.majority else "not known"
            print(
                f"{task.task}, {task.model}: {name} {metric.in_words} on "
                f"the test examples, the most frequent answer {majority}; best: {task.best_trial}"
            )
    for comparison in report.comparisons:
        print(f"{comparison.verdict}: {comparison.sentence}")
    print(run.training_summary)


if __name__ == "__main__":
    sys.exit(main())
