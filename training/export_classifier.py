"""Write fine-tuned models in other formats, each compared with the model before it is committed.

``python -m training.export_classifier --run STORE/runs/KEY --store STORE``

The log goes to stderr; the last line of stdout is a JSON object that lists the output.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any, get_args

from pipeline_config.finetuning import RecipeConfig
from pipeline_store import uris
from pipeline_store.layout import ExportsLayout, StoreLayout
from trained_models import artifacts
from trained_models.commit import CommitGuard
from trained_models.errors import UserError
from training.exporting import writing
from training.finetuning.exporting.chosen import TrainedRun
from training.runtime.job import nothing_to_save, on_sigterm, run_job
from training.text_to_text.setup import RunFolder
from training.text_to_text.trained import Trained

(_CHOICE,) = get_args(RecipeConfig.model_fields["export_formats"].annotation)
FORMATS: tuple[str, ...] = get_args(_CHOICE)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = parser().parse_args(argv)
    with on_sigterm(nothing_to_save("starts the export again")):
        return run_job(lambda: export_classifiers(arguments), log_stream=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m training.export_classifier",
        description="Writes fine-tuned models as Hugging Face folders "
        "(BertForSequenceClassification) and as SavedModels that take text. Each is read again and "
        "compared with the model on examples of its task; only if tokens, logits and answers "
        "agree, exports.json names it. Give the same command again, and nothing is done twice.",
        epilog="exit codes: 0 done, 40 configuration or argument, 41 a file is damaged or what was "
        "written is not the model, 42 out of memory, 43 stopped by SIGTERM, 45 any other failure",
    )
    parser.add_argument("--run", required=True, metavar="URI", help="folder of a fine-tuning run")
    parser.add_argument("--store", required=True, metavar="URI", help="root of the store")
    parser.add_argument(
        "--trial",
        metavar="ID",
        help="the trial whose model is exported; without it the best one of each task, as "
        "training_summary.json has them",
    )
    parser.add_argument(
        "--format",
        action="append",
        choices=FORMATS,
        dest="formats",
        help="give it again for more; without it those of finetuning.export_formats",
    )
    parser.add_argument(
        "--output",
        metavar="URI",
        help="folder for the formats and exports.json, with --trial; without it the run's "
        "exports/TRIAL",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="write and compare on this machine, print the figures, store nothing",
    )
    return parser


def export_classifiers(arguments: argparse.Namespace) -> None:
    """Write the formats that are missing; print a summary of all.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    if arguments.output is not None and arguments.trial is None:
        raise UserError("--output: it is the folder of one model; say which one by --trial.")
    store = StoreLayout(arguments.store)
    trained = TrainedRun.open(store, arguments.run)
    formats = list(dict.fromkeys(arguments.formats or trained.config.finetuning.export_formats))
    if not formats:
        raise UserError(
            "finetuning.export_formats is empty in the run's configuration, so there is nothing to "
            f"write; name {' or '.join(FORMATS)} by --format."
        )
    trials = trained.best_trials() if arguments.trial is None else [arguments.trial]
    guard = CommitGuard.from_environment()
    print(
        json.dumps(
            {
                trial_id: _export(
                    trained,
                    trial_id,
                    formats,
                    ExportsLayout(store.resolve(arguments.output))
                    if arguments.output is not None
                    else trained.run.trial_exports(trial_id),
                    guard,
                    dry_run=arguments.dry_run,
                )
                for trial_id in trials
            }
        )
    )


def _export(
    trained: TrainedRun,
    trial_id: str,
    formats: Sequence[str],
    layout: ExportsLayout,
    guard: CommitGuard,
    *,
    dry_run: bool,
) -> dict[str, Any]:
    chosen = trained.trial(trial_id)
    settings = trained.config.text_to_text
    sha256 = artifacts.model_files(chosen.layout.training.root).sha256
    exports = writing.committed(layout, sha256, formats)
    if exports is None:
        # Here, so that a wrong argument is reported at once and not after seconds of imports.
        if settings.init_checkpoint is None:
            from training.finetuning.exporting.exporter import ClassifierExporter

            exporter: writing.FormatWriter = ClassifierExporter.load(chosen, trained.store)
        else:
            from training.text_to_text.exporter import LEAST_BEAMS, TextExporter

            model = Trained.load(RunFolder(chosen.layout.root))
            beams = settings.num_beams if settings.num_beams > 1 else LEAST_BEAMS
            texts = [
                uris.join(chosen.layout.root, score.predictions.path)
                for score in chosen.result.scores.values()
            ]
            exporter = TextExporter(model, beams, settings.length_penalty, texts)
        exports = writing.export(exporter, formats, layout, guard, dry_run=dry_run)
    return writing.summary(exports, layout)


if __name__ == "__main__":
    sys.exit(main())
