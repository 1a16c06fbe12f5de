"""Fine-tune a candidate and the model in use on labeled tasks, for the promotion gate.

``python -m training.probe --run STORE/runs/KEY --store STORE --candidate MODEL_URI
[--baseline MODEL_URI] --manifest TASK_MANIFEST_URI [--manifest …]``
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pipeline_config import PipelineConfig
from pipeline_config.finetuning import RecipeConfig
from pipeline_store import uris
from pipeline_store.formats import (
    EncoderSource,
    ModelVersion,
    ProbeReport,
    TaskManifest,
    TaskSplit,
    Trial,
)
from pipeline_store.layout import RunLayout, StoreLayout, VersionLayout
from trained_models import artifacts
from trained_models.commit import CommitGuard
from trained_models.downstream import training_text
from trained_models.downstream.comparison import compare
from trained_models.downstream.summaries import summarize
from trained_models.downstream.trials import FinishedTrial
from trained_models.errors import UserError
from training.runtime import slices
from training.runtime.job import StopRequest, load_config, on_sigterm, run_job
from training.runtime.workers import Cluster, naming_lost_workers

log = logging.getLogger("training")

CANDIDATE, BASELINE = "candidate", "baseline"

FROZEN_RATE, FROZEN_EPOCHS = 3e-3, 20.0
"""Settings for a classifier alone: its loss is convex, and an epoch on computed features is cheap.
They bring it close to the minimum, so that seeds hardly differ."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = _parser().parse_args(argv)
    stop = StopRequest()
    # Before TensorFlow is imported: a signal in those seconds must not be lost.
    with on_sigterm(stop.on_signal):
        return run_job(lambda: probe(arguments, stop))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.probe",
        description="Fine-tunes a candidate and the model in use on labelled tasks, from the same "
        "seeds, and writes the run's probe report. The run's promotion settings say how. Give the "
        "same command again to go on after any interruption.",
        epilog="exit codes: 0 done, 40 configuration or argument, 41 bad data, 42 out of memory, "
        "43 stopped by SIGTERM with a checkpoint saved, 44 another machine is gone, 45 any other "
        "failure",
    )
    parser.add_argument(
        "--run", required=True, metavar="URI", help="run folder; its config.json says what to do"
    )
    parser.add_argument("--store", required=True, metavar="URI", help="root of the store")
    parser.add_argument(
        "--candidate",
        required=True,
        metavar="MODEL_URI",
        help="the training folder of a finished run, or a model version folder",
    )
    parser.add_argument(
        "--baseline",
        metavar="MODEL_URI",
        help="version folder of the model in use; without it the candidate's scores are recorded",
    )
    parser.add_argument(
        "--manifest",
        required=True,
        action="append",
        dest="manifests",
        metavar="URI",
        help="manifest of a prepared task, as beam_jobs.prepare_task prints it; one for each of "
        "promotion.probe_tasks",
    )
    return parser


@naming_lost_workers()
def probe(arguments: argparse.Namespace, stop: StopRequest) -> None:
    """Run all unfinished trials, and write the report unless it exists.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    store = StoreLayout(arguments.store)
    run = RunLayout(store.resolve(arguments.run))
    config = load_config(run.config)
    manifests = {uri: TaskManifest.load(uri) for uri in map(store.resolve, arguments.manifests)}
    _require_tasks(config, manifests.values())
    models = {CANDIDATE: _source(store.resolve(arguments.candidate))}
    if arguments.baseline is not None:
        models[BASELINE] = _source(store.resolve(arguments.baseline))
    subject = Subject(store, run, config, models, manifests)
    if Cluster.from_environment().index > 0:
        slices.lend(config, lambda: uris.exists(subject.report_uri))
        return
    existing = ProbeReport.load_or_none(subject.report_uri)
    if existing is not None:
        _require_same(existing, subject)
        log.info("%s exists and is kept.", subject.report_uri)
        _show(existing)
        return
    guard = CommitGuard.from_environment()
    slices.prepare(config)
    report = _report(subject, _trained(subject, guard, stop))
    guard.check()
    report.create(subject.report_uri)
    _show(report)


@dataclass(frozen=True)
class Subject:
    """The models to compare, and the tasks to compare them on.

    :param models: candidate, and baseline if there is one.
    :param manifests: task manifests by URI.
    """

    store: StoreLayout
    run: RunLayout
    config: PipelineConfig
    models: Mapping[str, EncoderSource]
    manifests: Mapping[str, TaskManifest]

    @property
    def baseline_version(self) -> str | None:
        """Return the version in use; None: there is none."""
        baseline = self.models.get(BASELINE)
        return None if baseline is None else baseline.version_id

    @property
    def report_uri(self) -> str:
        """Return the URI of the report."""
        return self.run.probe(self.baseline_version)

    @property
    def recipe(self) -> RecipeConfig:
        """Return the training recipe of the classifiers."""
        promotion, training = self.config.promotion, self.config.training
        frozen = promotion.probe_mode == "frozen"
        own = {"learning_rates": [FROZEN_RATE], "num_train_epochs": FROZEN_EPOCHS} if frozen else {}
        # Of hosts that train together only one probes, with its own devices.
        joined = training.distribution_strategy == "multi_worker_mirrored"
        return RecipeConfig(
            tasks=promotion.probe_tasks,
            random_seeds=promotion.probe_random_seeds,
            frozen_encoder=frozen,
            distribution_strategy="mirrored" if joined else training.distribution_strategy,
            mixed_precision_dtype=training.mixed_precision_dtype,
            max_seq_length=max(one.max_seq_length for one in self.manifests.values()),
            **own,
        )

    def facts(self) -> dict[str, object]:
        """Return the facts that a report is based on, by description."""
        return {
            "promotion.probe_mode": self.config.promotion.probe_mode,
            "promotion.probe_random_seeds": sorted(self.config.promotion.probe_random_seeds),
            "the candidate": self.models[CANDIDATE].files_sha256,
            "the manifests": {one.name: one.content_sha256 for one in self.manifests.values()},
        }


def _require_tasks(config: PipelineConfig, manifests: Collection[TaskManifest]) -> None:
    found, wanted = sorted(one.name for one in manifests), sorted(config.promotion.probe_tasks)
    if found != wanted:
        raise UserError(
            f"--manifest: the manifests are of the tasks {found}, but promotion.probe_tasks is "
            f"{wanted}. Give one for each."
        )
    if untested := [one.name for one in manifests if TaskSplit.TEST not in one.splits]:
        raise UserError(
            f"promotion.probe_tasks: {', '.join(untested)} has no test examples to compare models "
            "on. Name files for them in its task.toml, and prepare it again."
        )


def _source(uri: str) -> EncoderSource:
    version = ModelVersion.load_or_none(VersionLayout(uri).model)
    return EncoderSource(
        uri=uri,
        version_id=None if version is None else version.version_id,
        files_sha256=artifacts.model_files(uri).sha256,
    )


def _require_same(existing: ProbeReport, subject: Subject) -> None:
    found = {
        "promotion.probe_mode": existing.mode,
        "promotion.probe_random_seeds": existing.tasks[0].random_seeds,
        "the candidate": existing.candidate_sha256,
        "the manifests": existing.manifests,
    }
    differences = [
        f"{name} is {found[name]} in the report and {asked} now"
        for name, asked in subject.facts().items()
        if found[name] != asked
    ]
    if differences:
        raise UserError(
            f"{subject.report_uri} exists and was made from something else: "
            f"{'; '.join(differences)}. Delete it and its folder to probe again."
        )


def _trained(subject: Subject, guard: CommitGuard, stop: StopRequest) -> list[FinishedTrial]:
    """Run the trials one after the other, and return all of them."""
    # Here, so that a wrong argument is reported at once and not after seconds of imports.
    from training.finetuning import encoder
    from training.finetuning import trial as trials

    recipe, model = subject.recipe, subject.config.model
    strategy = trials.make_strategy(recipe, model, subject.config.tpu)
    finished = []
    for uri, manifest in subject.manifests.items():
        for name, source in subject.models.items():
            architecture = encoder.architecture(str(source.uri))
            for seed in recipe.random_seeds:
                trial = _trial(manifest, name, recipe, seed)
                place = subject.run.probe_trial(subject.baseline_version, trial.trial_id)
                job = trials.TrialJob(
                    trial,
                    source,
                    uri,
                    recipe,
                    architecture,
                    subject.config.tpu,
                    subject.store,
                    place,
                )
                result = trials.train_trial(job, strategy=strategy, guard=guard, stop=stop)
                finished.append(FinishedTrial(place, result))
    return finished


def _trial(manifest: TaskManifest, model: str, recipe: RecipeConfig, seed: int) -> Trial:
    [rate] = recipe.learning_rates
    return Trial(
        trial_id=f"{manifest.name}.{model}.{rate:g}.{seed}",
        task=manifest.name,
        model=model,
        learning_rate=rate,
        random_seed=seed,
    )


def _report(subject: Subject, finished: Sequence[FinishedTrial]) -> ProbeReport:
    summaries, comparisons = [], []
    for uri, manifest in subject.manifests.items():
        of_models = {
            name: [
                one
                for one in finished
                if (one.result.trial.task, one.result.trial.model) == (manifest.name, name)
            ]
            for name in subject.models
        }
        summaries += [summarize(manifest, of_model) for of_model in of_models.values()]
        if BASELINE in of_models:
            comparisons.append(
                compare(
                    manifest,
                    of_models[CANDIDATE],
                    of_models[BASELINE],
                    confidence=subject.config.promotion.confidence,
                    in_training_text=training_text.find(
                        subject.store, uri, subject.models[CANDIDATE], subject.models[BASELINE]
                    ),
                )
            )
    candidate = subject.models[CANDIDATE]
    return ProbeReport(
        candidate_uri=str(candidate.uri),
        candidate_sha256=str(candidate.files_sha256),
        baseline_version=subject.baseline_version,
        mode=subject.config.promotion.probe_mode,
        manifests={one.name: one.content_sha256 for one in subject.manifests.values()},
        tasks=summaries,
        comparisons=comparisons,
        created=datetime.now(UTC),
    )


def _show(report: ProbeReport) -> None:
    for summary in report.tasks:
        metrics = "  ".join(
            f"{name} {found.in_words} (most frequent answer {summary.majority[name]:.4f})"
            for name, found in summary.metrics.items()
        )
        log.info("%s on %s: %s", summary.model, summary.task, metrics)
    for comparison in report.comparisons:
        log.info("%s", comparison.sentence)


if __name__ == "__main__":
    sys.exit(main())
