"""Fine-tune models: run the trials of a run one after the other, resuming interrupted ones.

``python -m training.finetune --run STORE/runs/KEY --store STORE [--group K/N] [--trial ID]``
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Collection
from dataclasses import dataclass

from pipeline_config import FinetuningConfig, parse_finetuning_config
from pipeline_config.training_schema import ModelConfig
from pipeline_store import uris
from pipeline_store.formats import FinetuningPlan, TaskManifest, TaskSplit, Trial, TrialResult
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models.commit import CommitGuard
from trained_models.errors import PreemptedError, UserError
from training.finetuning.encoder import architecture
from training.finetuning.finished import require_same, require_same_model
from training.runtime import slices
from training.runtime.job import StopRequest, on_sigterm, run_job
from training.runtime.workers import Cluster

log = logging.getLogger("training")

SCORED = {
    "train_and_eval": (TaskSplit.VALIDATION, TaskSplit.TEST),
    "train": (TaskSplit.VALIDATION,),
    "eval": (TaskSplit.VALIDATION, TaskSplit.TEST),
}
"""Splits to score after training, by finetuning.mode. This job does not support other modes."""


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = _parser().parse_args(argv)
    stop = StopRequest()
    # Before TensorFlow is imported: a signal in those seconds must not be lost.
    with on_sigterm(stop.on_signal):
        return run_job(lambda: finetune(arguments, stop))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.finetune",
        description="Does the trials of a fine-tuning plan. Give the same command again to go "
        "on after any interruption: the weights come out the same, bit for bit. A trial that is "
        "done is left alone.",
        epilog="exit codes: 0 done, 40 configuration or argument, 41 bad data, 42 out of memory, "
        "43 stopped by SIGTERM with a checkpoint saved, 45 any other failure",
    )
    parser.add_argument(
        "--run",
        required=True,
        metavar="URI",
        help="run folder; its config.json and finetuning_plan.json say what to do",
    )
    parser.add_argument("--store", required=True, metavar="URI", help="root of the store")
    parser.add_argument(
        "--group",
        type=_group,
        default=(0, 1),
        metavar="K/N",
        help="do only the share of TPU K of N, which counts from 0: trials K, K+N, …",
    )
    parser.add_argument(
        "--trial",
        action="append",
        metavar="ID",
        help="do only this trial; give it again for more",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="check configuration, tasks and models, say what would be trained, write nothing",
    )
    return parser


def _group(text: str) -> tuple[int, int]:
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and int(number) < int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N with K from 0 to N-1, such as 0/2")
    return int(number), int(count)


def finetune(arguments: argparse.Namespace, stop: StopRequest) -> None:
    """Check everything that needs no TensorFlow, then run the trials.

    :raises JobError: see :mod:`trained_models.errors`.
    """
    if Cluster.from_environment().index > 0:
        log.info("Worker 0 fine-tunes; this host of the slice has nothing to do.")
        return
    store = StoreLayout(arguments.store)
    run = RunLayout(store.resolve(arguments.run))
    config = parse_finetuning_config(uris.read(run.config), run.config)
    plan = FinetuningPlan.load(run.finetuning_plan)
    if config.finetuning.mode not in SCORED:
        raise UserError(
            f"finetuning.mode: this job does {', '.join(SCORED)}; {config.finetuning.mode} is "
            "another program's."
        )
    trials = _chosen(plan, arguments)
    work = _Work(store, run, config, plan)
    todo = [trial for trial in trials if not work.is_done(trial)]
    log.info("%d of %d trials are done already.", len(trials) - len(todo), len(trials))
    if not todo:
        return
    guard = CommitGuard.from_environment()
    if config.finetuning.distribution_strategy == "tpu":
        slices.use_chips(config.tpu.accelerator_type)
    # They import TensorFlow themselves, so that a wrong argument is reported at once.
    do = _do_classifiers if config.text_to_text.init_checkpoint is None else _do_text_to_text
    do(work, todo, guard, stop, dry_run=arguments.dry_run)


def _do_classifiers(
    work: _Work, trials: list[Trial], guard: CommitGuard, stop: StopRequest, *, dry_run: bool
) -> None:
    architectures = _architectures(work.plan, work.store, {one.model for one in trials})

    from training.finetuning import setup, trial

    recipe = work.config.finetuning
    jobs = [
        setup.TrialJob(
            trial=one,
            encoder=work.plan.models[one.model],
            manifest_uri=work.store.resolve(work.plan.manifests[one.task]),
            recipe=recipe,
            model=architectures[one.model],
            tpu=work.config.tpu,
            store=work.store,
            layout=work.run.trial(one.trial_id),
        )
        for one in trials
    ]
    if dry_run:
        for job in jobs:
            setup.look(job)
        log.info("Dry run: nothing was written.")
        return
    strategy = setup.make_strategy(recipe, jobs[0].model, work.config.tpu)
    for job in jobs:
        if stop.requested:
            raise PreemptedError(f"stopped before {job.trial.trial_id}; the same command goes on.")
        if recipe.mode == "eval":
            source = work.source
            trial.evaluate_trial(
                job,
                source.trial(job.trial.trial_id),
                work.manifest(source, job.trial),
                strategy=strategy,
                guard=guard,
            )
        else:
            trial.train_trial(
                job, strategy=strategy, guard=guard, stop=stop, splits=SCORED[recipe.mode]
            )


def _do_text_to_text(
    work: _Work, trials: list[Trial], guard: CommitGuard, stop: StopRequest, *, dry_run: bool
) -> None:
    from training.text_to_text.trials import TextTrial, do_trials

    jobs = [
        TextTrial(
            trial=one,
            encoder=work.plan.models[one.model],
            manifest_uri=work.store.resolve(work.plan.manifests[one.task]),
            config=work.config,
            store=work.store,
            layout=work.run.trial(one.trial_id),
        )
        for one in trials
    ]
    do_trials(jobs, guard, stop, SCORED[work.config.finetuning.mode], dry_run=dry_run)


@dataclass(frozen=True)
class _Work:
    """A run's trials, and access to their existing results."""

    store: StoreLayout
    run: RunLayout
    config: FinetuningConfig
    plan: FinetuningPlan

    @property
    def source(self) -> RunLayout:
        """Return the run whose models are measured, in mode eval."""
        return self.store.run(str(self.config.finetuning.source_run))

    def manifest(self, run: RunLayout, trial: Trial) -> TaskManifest:
        """Return the manifest of a trial's task, from this run's plan or its source run's."""
        plan = self.plan if run is self.run else FinetuningPlan.load(run.finetuning_plan)
        return TaskManifest.load(self.store.resolve(plan.manifests[trial.task]))

    def is_done(self, trial: Trial) -> bool:
        """Return whether a trial is done.

        :raises UserError: it is done, but with other settings than now requested.
        """
        uri = self.run.trial(trial.trial_id).result
        found = TrialResult.load_or_none(uri)
        if found is None:
            return False
        manifest = self.manifest(self.run, trial)
        if self.config.finetuning.mode == "eval":
            source = TrialResult.load(self.source.trial(trial.trial_id).result)
            require_same_model(found, uri, source, manifest)
        else:
            require_same(
                found,
                uri,
                trial=trial,
                encoder=self.plan.models[trial.model],
                manifest=manifest,
                recipe=self.config.finetuning,
            )
        return True


def _chosen(plan: FinetuningPlan, arguments: argparse.Namespace) -> list[Trial]:
    number, count = arguments.group
    shares = plan.shares(count)
    share = shares[number] if number < len(shares) else []
    if arguments.trial is None:
        return share
    known = {trial.trial_id for trial in share}
    if unknown := sorted(set(arguments.trial) - known):
        raise UserError(
            f"--trial: {', '.join(unknown)} is not in the plan's share of this TPU, which has "
            f"{', '.join(sorted(known))}."
        )
    return [trial for trial in share if trial.trial_id in arguments.trial]


def _architectures(
    plan: FinetuningPlan, store: StoreLayout, models: Collection[str]
) -> dict[str, ModelConfig]:
    """Return the architecture of every model; foreign weights have that of the first of ours."""
    ours = {
        name: architecture(store.resolve(source.uri))
        for name, source in plan.models.items()
        if source.uri is not None and source.files_sha256 is not None
    }
    if not ours:
        raise UserError(
            "The plan names no model of this project, so nothing says what architecture its "
            "encoders have."
        )
    first = next(iter(ours.values()))
    return {name: ours.get(name, first) for name in models}


if __name__ == "__main__":
    sys.exit(main())
