"""Builds the command lines of the jobs on the TPU from the run's plan in the store."""

from __future__ import annotations

from model_registry.finetuning_plans import rental_count
from operators.own_run import prepared_manifest
from pipeline_config import parse_config, parse_finetuning_config
from pipeline_store import uris
from pipeline_store.formats import FinetuningPlan, RunPlan, RunRecord
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout


def train(run: RunLayout, store: StoreLayout) -> list[str]:
    """Return the arguments of ``training.train``."""
    lineage, plan = _planned(run, store)
    words = ["--run", run.root, "--store", store.root]
    for manifest in plan.trained.values():
        words += ["--manifest", manifest]
    if plan.train_steps is not None:
        words += ["--train-steps", str(plan.train_steps)]
    if plan.parent_version is not None:
        words += ["--init-model", lineage.version(plan.parent_version)]
    for manifest in plan.replayed.values():
        words += ["--replay-manifest", manifest]
    for manifest in plan.scored.values():
        words += ["--held-out-manifest", manifest]
    return words


def evaluate(run: RunLayout, store: StoreLayout) -> list[str]:
    """Return the arguments of ``training.evaluate``."""
    lineage, plan = _planned(run, store)
    words = ["--store", store.root, "--config", run.config, "--current-set", plan.partition]
    words += ["--output", run.evaluation(plan.parent_version)]
    for name, manifest in plan.evaluated.items():
        words += ["--set", f"{name}={manifest}"]
    words += ["--model", f"candidate={run.training.root}"]
    if (version := plan.parent_version) is not None:
        head = run.head(version)
        # An imported encoder's head was random; it is compared with a head that was trained.
        baseline = head.root if uris.exists(head.result) else lineage.version(version)
        words += ["--model", f"baseline={baseline}", "--earlier", lineage.version(version)]
    return words


def probe(run: RunLayout, store: StoreLayout) -> list[str]:
    """Return the arguments of ``training.probe`` except the manifests, made after the plan."""
    lineage, plan = _planned(run, store)
    words = ["--run", run.root, "--store", store.root, "--candidate", run.training.root]
    if plan.parent_version is not None:
        words += ["--baseline", lineage.version(plan.parent_version)]
    return words


def probe_manifests(run: RunLayout) -> list[str]:
    """Return the manifest arguments of ``training.probe``.

    :raises PipelineFailure: a task of ``promotion.probe_tasks`` was not prepared.
    """
    words = []
    for name in parse_config(uris.read(run.config), run.config).promotion.probe_tasks:
        words += ["--manifest", prepared_manifest(run.prepared_task(name), "probe_data")]
    return words


def finetune(run: RunLayout, store: StoreLayout, number: int) -> list[str]:
    """Return the arguments of ``training.finetune`` on one of the run's TPUs.

    :param number: number of the TPU, from 0.
    """
    config = parse_finetuning_config(uris.read(run.config), run.config)
    count = rental_count(config, FinetuningPlan.load(run.finetuning_plan))
    words = ["--run", run.root, "--store", store.root]
    return words if count == 1 else [*words, "--group", f"{number}/{count}"]


def _planned(run: RunLayout, store: StoreLayout) -> tuple[LineageLayout, RunPlan]:
    lineage_id = RunRecord.load(run.record).lineage_id
    return store.lineage(lineage_id), RunPlan.load(run.plan)
