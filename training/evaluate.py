"""Compare models on held-out documents of some partitions: identical rows, identical masks.

``python -m training.evaluate --store STORE --config CONFIG --current-set 2026-01-02
--set 2026-01-02=MANIFEST --model candidate=STORE/runs/KEY/training --output REPORT``
"""

from __future__ import annotations

import argparse
import logging
import sys

from pipeline_store import uris
from pipeline_store.formats import EvaluationReport, PartitionManifest, PhaseName
from pipeline_store.layout import StoreLayout
from trained_models.commit import CommitGuard
from trained_models.errors import BadDataError, UserError
from trained_models.importing.sources import files_sha256
from training.reporting import report as reports
from training.runtime import slices
from training.runtime.job import add_sets, load_config, named, nothing_to_save, on_sigterm, run_job
from training.runtime.phases import phase
from training.runtime.workers import Cluster, naming_lost_workers

log = logging.getLogger("training")

# Generous limits for the rounding of float32 sums on another machine or device: nats per token, and
# the shares of tokens whose most likely predictions are so close that they swap ranks, and of
# documents whose nearest halves do.
AGREEMENT = reports.Differences(loss=1e-3, accuracy=1e-2, mrr=1e-2, recall=1e-2)


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = _parser().parse_args(argv)
    with on_sigterm(nothing_to_save("starts the evaluation again")):
        return run_job(lambda: evaluate(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.evaluate",
        description="Scores models on the held-out documents of partitions and writes an "
        "evaluation report with sums per document. Only validation records are read, so a model "
        "is never scored on what it was trained on.",
        epilog="exit codes: 0 done, 40 configuration or argument, 41 bad data or no agreement, "
        "42 out of memory, 43 stopped by SIGTERM, 44 another machine is gone, 45 any other failure",
    )
    parser.add_argument("--store", required=True, metavar="URI", help="root of the store")
    parser.add_argument("--config", required=True, metavar="URI", help="a run's config.json")
    add_sets(parser)
    parser.add_argument(
        "--model",
        required=True,
        action="append",
        type=named,
        dest="models",
        metavar="NAME=MODEL_URI",
        help="candidate=URI and, if there is a model in use, baseline=URI: a model version folder, "
        "the training folder of a finished run, a Hugging Face folder or the prefix of a "
        "TensorFlow checkpoint",
    )
    parser.add_argument(
        "--earlier",
        metavar="VERSION_URI",
        help="the model version in use: what its evaluation drew documents of is scored on these "
        "again, and the scores that it has of a model on them are taken, but for --print-only",
    )
    parser.add_argument(
        "--output",
        metavar="URI",
        help="report to create; kept if it exists and was made from the same manifests and models",
    )
    parser.add_argument(
        "--print-only",
        action="store_true",
        help="compute and print the scores, write nothing; if the output exists, say whether it "
        "agrees",
    )
    return parser


@naming_lost_workers()
def evaluate(arguments: argparse.Namespace) -> None:
    """Print the scores, computing them unless the output has them already.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    sets, models = dict(arguments.sets), dict(arguments.models)
    _check(arguments, sets, models)
    store = StoreLayout(arguments.store)
    output = store.resolve(arguments.output) if arguments.output else None
    config = load_config(store.resolve(arguments.config))
    if Cluster.from_environment().index > 0:
        slices.lend(config, lambda: output is not None and uris.exists(output))
        return
    existing = EvaluationReport.load_or_none(output) if output else None
    models = {name: store.resolve(uri) for name, uri in models.items()}
    if existing is not None:
        _require_same_subjects(existing, arguments, _made_from(arguments, store, sets, models))
    if existing is not None and not arguments.print_only:
        log.info("%s exists and is kept.\n%s", output, reports.table(existing))
        return
    guard = CommitGuard.from_environment()
    slices.prepare(config)

    # Here, so that a wrong argument is reported at once and not after seconds of imports.
    from training.evaluation import evaluator
    from training.evaluation.earlier import Earlier

    earlier = store.resolve(arguments.earlier) if arguments.earlier else None
    with phase(PhaseName.EVALUATION):
        report = evaluator.evaluate(
            store=store,
            config=config,
            current_set=arguments.current_set,
            manifest_uris=sets,
            model_uris=models,
            earlier=Earlier.of_version(earlier) if earlier else None,
            takes_scores=not arguments.print_only,
        )
    log.info("Held-out scores (* the run's own set):\n%s", reports.table(report))
    if existing is not None:
        _check_agreement(report, existing, arguments.output)
    elif output is not None and not arguments.print_only:
        guard.check()
        report.create(output)
        log.info("Written to %s.", output)


def _check(arguments: argparse.Namespace, sets: dict[str, str], models: dict[str, str]) -> None:
    if len(sets) < len(arguments.sets) or len(models) < len(arguments.models):
        raise UserError("--set and --model need different names; one is given twice.")
    if arguments.current_set not in sets:
        raise UserError(
            f"--current-set {arguments.current_set!r} is not among the sets {sorted(sets)}; add "
            f"--set {arguments.current_set}=MANIFEST_URI."
        )
    if not (arguments.output or arguments.print_only):
        raise UserError("Give --output for the report, or --print-only.")


def _made_from(
    arguments: argparse.Namespace, store: StoreLayout, sets: dict[str, str], models: dict[str, str]
) -> dict[str, str]:
    """Return the content hashes that a report with these arguments is based on.

    The format is that of :func:`training.reporting.report.made_from`.
    """
    manifests = {n: PartitionManifest.load(store.resolve(uri)) for n, uri in sets.items()}
    return {
        "current set": arguments.current_set,
        **{f"set {name}": manifest.content_sha256 for name, manifest in manifests.items()},
        **{f"model {name}": files_sha256(uri) for name, uri in models.items()},
    }


def _require_same_subjects(
    existing: EvaluationReport, arguments: argparse.Namespace, asked: dict[str, str]
) -> None:
    found = reports.made_from(existing)
    differences = [
        f"{name} is {found.get(name, 'not there')} in the report and "
        f"{asked.get(name, 'not there')} in the arguments"
        for name in sorted(found.keys() | asked.keys())
        if found.get(name) != asked.get(name)
    ]
    if differences:
        raise UserError(
            f"{arguments.output} exists and was made from something else: "
            f"{'; '.join(differences)}. Give the manifests and models it was made from, or "
            "another --output."
        )


def _check_agreement(report: EvaluationReport, existing: EvaluationReport, output: str) -> None:
    try:
        found = reports.largest_differences(report, existing)
    except ValueError as error:
        raise UserError(f"{output} cannot be compared: {error}.") from error
    if any(difference > limit for difference, limit in zip(found, AGREEMENT, strict=True)):
        raise BadDataError(
            f"{output} does not agree: a loss differs by {found.loss:.6f} nats per token, an "
            f"accuracy by {found.accuracy:.2%}, an MRR by {found.mrr:.4f}, a recall@1 by "
            f"{found.recall:.4f}. The report, the models or the records are not what they were."
        )
    log.info(
        "%s agrees: largest difference of a loss %.1e nats per token, of an accuracy %.1e, of an "
        "MRR %.1e, of a recall@1 %.1e.",
        output,
        *found,
    )


if __name__ == "__main__":
    sys.exit(main())
