"""Makes the first model of a lineage from published weights.

A published BERT that a lineage begins with becomes a version like any other, so that the first
update can be compared with it, and a rollback can return to it. Its records lie in the folder of
its own run: a training of no steps, an evaluation, and a verdict that records its scores.
"""

from __future__ import annotations

from datetime import UTC, datetime

from model_registry import gate, outcomes
from model_registry.production import production, promote
from model_registry.publishing import publish
from pipeline_config import PipelineConfig, parse_config
from pipeline_store import identity, uris
from pipeline_store.formats import (
    EvaluationReport,
    ModelExports,
    ModelVersion,
    OutcomeKind,
    RunPlan,
    RunRecord,
    Verdict,
    VerdictKind,
)
from pipeline_store.layout import RunLayout, StoreLayout
from trained_models.artifacts import model_files

IMPORT = "import"
"""Stands in for a DAG's id in the records of runs that import."""


def begin_import(
    store: StoreLayout,
    config: PipelineConfig,
    *,
    run_id: str,
    partition: str,
    evaluated: dict[str, str],
    lease_sequence: int,
) -> RunLayout | None:
    """Write an import's plan; return its folder, or None if there is nothing to import.

    There is nothing if the lineage has a model in production, or begins with random weights.

    :param run_id: of the importing run or command; an equal id means the same import.
    :param partition: whose held-out documents are the import's own set.
    :param evaluated: manifest by set of held-out documents.
    :param lease_sequence: of the lineage's lease.
    :raises RegistryError: the lineage's pointer names a version that does not exist.
    """
    lineage = store.lineage(config.model.lineage_id)
    if config.model.init_checkpoint is None or production(lineage) is not None:
        return None
    record = record_of(config, run_id=run_id, partition=partition)
    run = store.run(record.run_key)
    uris.create_if_absent(run.config, config.to_bytes())
    record.create(run.record)
    RunPlan(
        partition=partition,
        parent_version=None,
        trained={},
        replayed={},
        not_replayed={},
        evaluated=evaluated,
        lease_sequence=lease_sequence,
        created=record.created,
    ).create(run.plan)
    return run


def record_of(config: PipelineConfig, *, run_id: str, partition: str) -> RunRecord:
    """Return the run record of an import."""
    return RunRecord(
        run_key=identity.run_key(IMPORT, run_id),
        dag_id=IMPORT,
        run_id=run_id,
        partition=partition,
        lineage_id=config.model.lineage_id,
        config_sha256=config.sha256,
        created=datetime.now(UTC),
    )


def arguments(store: StoreLayout, run: RunLayout) -> list[str]:
    """Return the arguments of ``training.import_version`` for an import that has begun."""
    plan = RunPlan.load(run.plan)
    words = ["--run", run.root, "--store", store.root, "--current-set", plan.partition]
    for name, manifest in plan.evaluated.items():
        words += ["--set", f"{name}={manifest}"]
    return words


def finish_import(store: StoreLayout, run: RunLayout) -> tuple[ModelVersion, Verdict]:
    """Publish the result of ``training.import_version``, and put it into production.

    Doing it again changes nothing.

    :raises RegistryError: files are damaged, or a model was put into production meanwhile.
    :raises FileNotFoundError: the import has not been carried out.
    """
    config = parse_config(uris.read(run.config), run.config)
    report = EvaluationReport.load(run.evaluation(None))
    verdict = _verdict(report, config)
    if not verdict.create(run.verdict(None)):
        verdict = Verdict.load(run.verdict(None))
    ModelExports(
        files_sha256=model_files(run.training.root).sha256,
        formats={},
        left_out=dict.fromkeys(
            sorted(set(config.promotion.export_formats)),
            "it is what was imported; use the files that it came from",
        ),
        created=datetime.now(UTC),
    ).create(run.exports.record)
    version = publish(store, run)
    lineage = store.lineage(config.model.lineage_id)
    promote(lineage, version.version_id, expected_baseline=None, reason=verdict.reason)
    outcomes.record(
        run,
        OutcomeKind.PROMOTED,
        verdict.reason,
        version_id=version.version_id,
        written_by=IMPORT,
    )
    return version, verdict


def _verdict(report: EvaluationReport, config: PipelineConfig) -> Verdict:
    """Return the scores of an import as a verdict, which always promotes it: it is the start.

    Whether it is better than token frequencies shows if vocabulary and casing are right.
    """
    # On labeled tasks there is nothing to compare it with.
    promotion = config.promotion.model_copy(update={"probe_tasks": []})
    found = gate.judge(report, promotion, baseline_version=None)
    reason = (
        f"Imported from {config.model.init_checkpoint}. On {found.documents} held-out documents of "
        f"{report.current_set} its loss is {found.candidate_loss:.4f}; predicting each token by "
        f"its frequency loses {found.reference_loss:.4f}."
    )
    return found.model_copy(update={"verdict": VerdictKind.PROMOTED, "reason": reason})


def doubt(verdict: Verdict) -> str | None:
    """Return a warning if an imported model predicts no better than token frequencies."""
    if verdict.improvement_low > 0:
        return None
    return (
        "WARNING: the imported model is not better than the frequencies of tokens. Are its "
        "vocabulary and its casing (vocabulary.uri, vocabulary.do_lower_case) the right ones? A "
        "model whose masked-LM head is new (model.init_encoder_only) begins like this; the first "
        "run trains its head alone before anything is compared with it (training.head_steps)."
    )
