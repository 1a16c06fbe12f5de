"""Make smaller models from a fine-tuned classifier, and compare each with it.

``python -m training.compress --run STORE/runs/KEY --store STORE --child tflite_dynamic_range``

The log goes to stderr; the last line of stdout is a JSON object with the table's rows by trial.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from pipeline_config import with_overrides
from pipeline_config.compression import ChildName, CompressionConfig
from pipeline_store.formats import ChildParent, FinetuningPlan
from pipeline_store.layout import StoreLayout
from trained_models.commit import CommitGuard
from trained_models.errors import UserError
from training.finetuning.exporting.chosen import ChosenTrial, TrainedRun
from training.runtime.job import StopRequest, on_sigterm, run_job

if TYPE_CHECKING:
    from pipeline_store.formats import CompressedModel

_SECTION = "compression."


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = parser().parse_args(argv)
    stop = StopRequest()
    with on_sigterm(stop.on_signal):
        return run_job(lambda: compress(arguments, stop), log_stream=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m training.compress",
        description="Makes smaller models of fine-tuned classifiers: fewer layers, a smaller "
        "vocabulary, smaller numbers. Each is written, loaded again, measured on the test examples "
        "and judged; one that is refused keeps no files. Give the same command again to go on "
        "after any interruption.",
        epilog="exit codes: 0 done, also if a child is refused; 40 configuration or argument, 41 a "
        "file is damaged, 42 out of memory, 43 stopped by SIGTERM, 45 any other failure",
    )
    parser.add_argument("--run", required=True, metavar="URI", help="folder of a fine-tuning run")
    parser.add_argument("--store", required=True, metavar="URI", help="root of the store")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--task", metavar="NAME", help="only the best classifier of this task")
    which.add_argument("--trial", metavar="ID", help="only the classifier of this trial")
    parser.add_argument(
        "--child",
        action="append",
        metavar="NAME",
        dest="children",
        help="steps joined by +, such as student+trim+tflite_dynamic_range; give it again for "
        "more; without it those of compression.children",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="compression.NAME=VALUE",
        dest="settings",
        help="a setting in the place of the run's own; give it again for more",
    )
    return parser


def compress(arguments: argparse.Namespace, stop: StopRequest) -> None:
    """Make the children that are missing; print all of them.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    store = StoreLayout(arguments.store)
    trained = TrainedRun.open(store, arguments.run)
    own = dict(map(_setting, arguments.settings))
    # Without overrides, rules added after the configuration was written are not applied to it.
    config = with_overrides(trained.config, own) if own else trained.config
    settings: CompressionConfig = config.compression
    names = list(dict.fromkeys(arguments.children or settings.children))
    _check(names)
    trials = [arguments.trial] if arguments.trial else trained.best_trials(arguments.task)
    found: dict[str, list[dict[str, Any]]] = {}
    for trial_id in trials:
        chosen = trained.trial(trial_id)
        found[trial_id] = _compress(trained, chosen, names, settings, stop)
    print(json.dumps(found))


def _setting(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.startswith(_SECTION):
        raise UserError(f"--set: {text!r} is not {_SECTION}NAME=VALUE.")
    return name, value


def _check(names: list[str]) -> None:
    if not names:
        raise UserError(
            "compression.children is empty in the run's configuration, so there is nothing to "
            "make; name a child by --child, such as tflite_dynamic_range."
        )
    try:
        TypeAdapter(list[ChildName]).validate_python(names)
    except ValidationError as error:
        raise UserError(
            f"--child: {', '.join(names)} are not all children; a name is some of student, trim "
            "and one of tflite_float32, tflite_float16, tflite_dynamic_range, in this order, "
            "joined by +."
        ) from error


def _compress(
    trained: TrainedRun,
    chosen: ChosenTrial,
    names: list[str],
    settings: CompressionConfig,
    stop: StopRequest,
) -> list[dict[str, Any]]:
    result, plan = chosen.result, FinetuningPlan.load(trained.source.finetuning_plan)
    parent = ChildParent(
        run_key=trained.source.root.rpartition("/")[2],
        trial_id=result.trial.trial_id,
        weights_sha256=result.weights_sha256,
        lineage_id=plan.lineage_id,
        version_id=result.encoder.version_id,
    )
    layout = trained.source.children(parent.trial_id)
    # Here, so that a wrong argument is reported at once and not after seconds of imports.
    from trained_models.compression import page
    from training.compression.making import Maker, all_children

    maker = Maker.load(
        chosen,
        identity=parent,
        store=trained.store,
        layout=layout,
        settings=settings,
        guard=CommitGuard.from_environment(),
        stop=stop,
    )
    maker.make(names)
    children: list[CompressedModel] = all_children(layout)
    page.write(layout, children)
    return page.rows(children)


if __name__ == "__main__":
    sys.exit(main())
