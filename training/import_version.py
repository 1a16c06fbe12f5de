"""Make foreign weights the first model of a lineage: load, save and score them.

``python -m training.import_version --run STORE/runs/KEY --store STORE --current-set 2026-01-02
--set 2026-01-02=MANIFEST``

The log goes to stderr; the last line of stdout is a JSON object with the result.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys

from pipeline_config import with_overrides
from pipeline_store.formats import EvaluationReport, TrainingResult
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models import record_sources
from trained_models.checkpoint_store import CheckpointStore
from trained_models.commit import CommitGuard
from trained_models.errors import UserError
from trained_models.finished import finished_training
from training.reporting import report as reports
from training.runtime.job import add_sets, load_config, nothing_to_save, on_cpu, on_sigterm, run_job

log = logging.getLogger("training")

ROWS = 512
"""Maximum number of held-out rows per set that the model is scored on here: BERT-base takes some
two minutes for them on four cores and, by estimate, another four for the halves of their documents.
The first update scores it on all rows, together with its candidate."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = parser().parse_args(argv)
    with on_sigterm(nothing_to_save("starts the import again")):
        return run_job(lambda: import_version(arguments), log_stream=sys.stderr)


def parser() -> argparse.ArgumentParser:
    """Return the command-line parser."""
    parser = argparse.ArgumentParser(
        prog="python -m training.import_version",
        description="Loads model.init_checkpoint of a run's config.json, saves it as a training of "
        "no steps, and scores it on held-out documents. `python -m model_registry import` calls "
        "this and makes a model version of the result.",
        epilog="exit codes: 0 done, 40 configuration or argument, or the weights do not fit, 41 a "
        "file is damaged, 42 out of memory, 43 stopped by SIGTERM, 45 any other failure",
    )
    parser.add_argument("--run", required=True, metavar="URI", help="folder with config.json")
    parser.add_argument("--store", required=True, metavar="URI", help="root of the store")
    add_sets(parser)
    return parser


def import_version(arguments: argparse.Namespace) -> None:
    """Load, save and score the weights, skipping completed steps; print the result.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    store = StoreLayout(arguments.store)
    run = RunLayout(store.resolve(arguments.run))
    config = on_cpu(load_config(run.config))
    source = config.model.init_checkpoint
    if source is None:
        raise UserError("model.init_checkpoint is empty: there is nothing to import.")
    vocabulary = record_sources.vocabulary_info(store, config)
    inputs = record_sources.training_inputs([], vocabulary, config)
    checkpoints = CheckpointStore(
        run.training,
        CommitGuard.from_environment(),
        config,
        inputs=inputs,
        data_sha256=record_sources.fingerprint(inputs),
    )
    result = finished_training(run.training, checkpoints, "Import it in a new run.")
    if result is None:
        # Here, so that a wrong argument is reported at once and not after seconds of imports.
        from training.importing.loading import initial_model
        from training.model.starts import save_imported

        initial = initial_model(store.resolve(source), store, config)
        result = save_imported(run.training, config, initial, inputs, checkpoints)
    report = EvaluationReport.load_or_none(run.evaluation(None))
    if report is None:
        from training.evaluation import evaluator

        rows = min(ROWS, config.evaluation.max_records_per_set)
        report = evaluator.evaluate(
            store=store,
            config=with_overrides(config, {"evaluation.max_records_per_set": rows}),
            current_set=arguments.current_set,
            manifest_uris=dict(arguments.sets),
            model_uris={"candidate": run.training.root},
        )
        # The first update is to draw its documents from all rows, not from an excerpt.
        report = report.model_copy(update={"samples": {}})
        report.create(run.evaluation(None))
    log.info("Held-out scores (* the run's own set):\n%s", reports.table(report))
    print(json.dumps(_summary(result, report)))


def _summary(result: TrainingResult, report: EvaluationReport) -> dict[str, object]:
    [model] = report.models
    losses = {scores.set_name: round(scores.loss, 4) for scores in model.sets}
    return {"weights_sha256": result.weights_sha256, "held_out_loss": losses}


if __name__ == "__main__":
    sys.exit(main())
