"""Makes an immutable model version out of a run's result."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime

from model_registry import model_card
from model_registry.best_scores import best_scores, with_evaluation
from model_registry.errors import ProductionMovedError, RegistryError
from model_registry.model_card import ModelFacts
from model_registry.panel import bounded
from model_registry.production import production
from model_registry.versions import load_version, manifests
from pipeline_config import parse_config
from pipeline_store import identity, uris
from pipeline_store.formats import (
    BestScores,
    EvaluationReport,
    FileDigest,
    ModelExports,
    ModelVersion,
    PartitionManifest,
    ProbeReport,
    RunPlan,
    RunRecord,
    TrainingResult,
    Verdict,
    VerdictKind,
    VocabularyInfo,
)
from pipeline_store.layout import (
    LineageLayout,
    RunLayout,
    StoreLayout,
    VersionLayout,
    vocabulary_model,
)
from trained_models.artifacts import (
    copy_checkpoint_files,
    copy_exports,
    model_files,
    version_prefix,
)
from trained_models.heritage import of_model


def publish(store: StoreLayout, run: RunLayout) -> ModelVersion:
    """Publish a run's candidate, which the gate must have promoted; a run has one version at most.

    Everything is copied into the version's folder, and every byte is checked on the way;
    ``model.json`` comes last and makes it a version. Doing it again returns the existing version.

    :param run: the run, with its plan, training result, evaluation, verdict and exports. It was
        compared with the version that its plan starts from, or with the unigram model if it has
        none.
    :raises RegistryError: the verdict is a rejection, the candidate was not exported, or
        vocabularies differ.
    :raises ProductionMovedError: another model was put into production since the comparison.
    :raises FormatError: files of the run are damaged.
    """
    record, plan = RunRecord.load(run.record), RunPlan.load(run.plan)
    baseline = plan.parent_version
    lineage = store.lineage(record.lineage_id)
    folder = VersionLayout(lineage.version(identity.version_id(record.run_key)))
    if uris.exists(folder.model):
        return ModelVersion.load(folder.model)
    facts = _gather(lineage, run, record, plan)
    _require_still_in_use(lineage, baseline, facts.version_id)

    weights, prefix = copy_checkpoint_files(run.training.root, folder.root)
    formats = copy_exports(run.exports.root, facts.exports, folder.root)
    # Copying takes minutes. A process that was overtaken must not replace a version's documents.
    if uris.exists(folder.model):
        return ModelVersion.load(folder.model)
    _require_still_in_use(lineage, baseline, facts.version_id)
    before = best_scores(lineage, baseline)
    probe = ProbeReport.load_or_none(run.probe(baseline))
    best = with_evaluation(before, facts.report, facts.version_id, baseline, probe)
    best = bounded(best, plan.evaluated, facts.config.evaluation.max_sets)
    named, copies = _named_manifests(lineage, facts, folder)
    files = weights + formats + _write_documents(facts, folder, best, copies)
    model = ModelVersion(
        version_id=facts.version_id,
        lineage_id=record.lineage_id,
        parent=baseline,
        run_key=record.run_key,
        partitions_seen=list(facts.manifests),
        manifests=named,
        files=sorted(files, key=lambda file: file.path),
        checkpoint_prefix=prefix,
        vocabulary_sha256=facts.vocabulary_info.sha256,
        train_steps_total=facts.train_steps_total,
        metrics=metrics_of(facts.report, facts.verdict),
        created=datetime.now(UTC),
    )
    _require_still_in_use(lineage, baseline, facts.version_id)
    # Another try of this task may have been faster: its published version counts.
    return model if model.create(folder.model) else ModelVersion.load(folder.model)


def _gather(lineage: LineageLayout, run: RunLayout, record: RunRecord, plan: RunPlan) -> ModelFacts:
    baseline = plan.parent_version
    verdict = Verdict.load(run.verdict(baseline))
    if verdict.verdict is not VerdictKind.PROMOTED:
        raise RegistryError(
            f"The candidate of run {record.run_key} is not published, because the verdict is "
            f"{str(verdict.verdict)!r}: {verdict.reason}"
        )
    parent = load_version(lineage, baseline) if baseline else None
    seen = manifests(lineage, parent) if parent else {}
    # A partition that is trained on again counts once, with its newest manifest.
    seen = {name: uri for name, uri in seen.items() if name not in plan.trained} | plan.trained
    manifest_files = {name: (uris.read(uri), uri) for name, uri in seen.items()}
    vocabulary_info = VocabularyInfo.load(lineage.vocabulary_info)
    vocabulary_file = vocabulary_model(lineage, vocabulary_info.vocabulary_kind)
    result = TrainingResult.load(run.training.result)
    weights = model_files(run.training.root)
    facts = ModelFacts(
        version_id=identity.version_id(record.run_key),
        folder=lineage.version(identity.version_id(record.run_key)),
        record=record,
        plan=plan,
        config=parse_config(uris.read(run.config), run.config),
        result=result,
        report=EvaluationReport.load(run.evaluation(baseline)),
        verdict=verdict,
        manifests={name: PartitionManifest.parse(*found) for name, found in manifest_files.items()},
        manifest_files=manifest_files,
        vocabulary=uris.read(lineage.vocabulary),
        vocabulary_model=uris.read(vocabulary_file) if vocabulary_file else None,
        vocabulary_info=vocabulary_info,
        train_steps_total=result.train_steps + (parent.train_steps_total if parent else 0),
        checkpoint_prefix=version_prefix(weights),
        exports=_exports(run, record, weights.sha256),
        heritage=of_model(weights),
    )
    _require_one_vocabulary(lineage, facts)
    _require_wanted_formats(facts)
    return facts


def _exports(run: RunLayout, record: RunRecord, sha256: str) -> ModelExports:
    exports = ModelExports.load_or_none(run.exports.record)
    if exports is None:
        raise RegistryError(
            f"The candidate of run {record.run_key} is not published, because it was not exported: "
            f"there is no {run.exports.record}. Run the task before this one, `export`."
        )
    if exports.files_sha256 != sha256:
        raise RegistryError(
            f"{run.exports.record} is of the model {exports.files_sha256}, but the candidate of "
            f"run {record.run_key} is {sha256}. Delete that folder and run the task `export` again."
        )
    return exports


def _require_wanted_formats(facts: ModelFacts) -> None:
    wanted = sorted(set(facts.config.promotion.export_formats))
    found = sorted(facts.exports.formats | facts.exports.left_out)
    if found != wanted:
        raise RegistryError(
            f"The candidate of run {facts.record.run_key} was exported as {found}, but its "
            f"promotion.export_formats is {wanted}. Delete its folder of exports and run the task "
            "`export` again."
        )


def _require_one_vocabulary(lineage: LineageLayout, facts: ModelFacts) -> None:
    info = facts.vocabulary_info
    found = {lineage.vocabulary: (facts.vocabulary, info.tokens_sha256)}
    file = vocabulary_model(lineage, info.vocabulary_kind)
    if file is not None and facts.vocabulary_model is not None:
        found[file] = (facts.vocabulary_model, info.sha256)
    wrong = [uri for uri, (data, sha256) in found.items() if _sha256(data) != sha256]
    wrong += [
        f"partition {name}"
        for name, manifest in facts.manifests.items()
        if manifest.vocabulary_sha256 != info.sha256
    ]
    if wrong:
        raise RegistryError(
            f"{lineage.vocabulary_info} does not describe the vocabulary of {', '.join(wrong)}: "
            "token ids would mean different words. Restore it; a lineage keeps one vocabulary for "
            "ever."
        )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _require_still_in_use(lineage: LineageLayout, baseline: str | None, version_id: str) -> None:
    """Refuse before a copy and before the commit; :func:`promote` makes the final check."""
    current = production(lineage)
    # Another try of this task may have put this very version into production meanwhile.
    if (current.version_id if current else None) not in (baseline, version_id):
        raise ProductionMovedError(
            f"The candidate was compared with {baseline or 'no model in use'}, but "
            f"{current.version_id if current else 'no model'} is in use now: trigger a new run."
        )


def _named_manifests(
    lineage: LineageLayout, facts: ModelFacts, folder: VersionLayout
) -> tuple[dict[str, FileDigest], dict[str, bytes]]:
    """Return the manifests that lie among the lineage's partitions, and by URI those to copy.

    Copying each manifest into each version would make some n^2/2 files after n updates. Manifests
    are copied only if the lineage has them nowhere else: a version from before this rule may have
    one whose content differs from that among the partitions.
    """
    named, copies = {}, {}
    for name, (data, uri) in facts.manifest_files.items():
        keys = [shard.split("/")[-2] for shard in facts.manifests[name].shards]
        original = lineage.manifest(name, identity.manifest_id(name, keys))
        for place in (uri, original):
            path = place.removeprefix(f"{lineage.root}/")
            is_there = place == uri or uris.read_or_none(place) == data
            if path.startswith("partitions/") and is_there:
                named[name] = FileDigest.of(path, data)
                break
        else:
            copies[folder.manifest(name)] = data
    return named, copies


def _write_documents(
    facts: ModelFacts, folder: VersionLayout, best: BestScores, manifests: dict[str, bytes]
) -> list[FileDigest]:
    documents = {
        folder.config: facts.config.to_bytes(),
        folder.plan: facts.plan.to_bytes(),
        folder.vocabulary: facts.vocabulary,
        folder.evaluation: facts.report.to_bytes(),
        folder.verdict: facts.verdict.to_bytes(),
        folder.best_scores: best.to_bytes(),
        folder.card: model_card.render(facts).encode(),
    }
    file = vocabulary_model(folder, facts.vocabulary_info.vocabulary_kind)
    if file is not None and facts.vocabulary_model is not None:
        documents[file] = facts.vocabulary_model
    files = []
    for uri, data in (documents | manifests).items():
        # All of this follows from the run and its plan, so another try writes the same bytes.
        uris.write(uri, data)
        path = uri.removeprefix(folder.root + "/")
        files.append(FileDigest.of(path, data))
    return files


def metrics_of(report: EvaluationReport, verdict: Verdict) -> dict[str, float]:
    """Return the numbers of a version, named ``model/set/metric``."""
    metrics = {"improvement": verdict.improvement}
    for name, loss in report.unigram_losses.items():
        metrics[f"unigram/{name}/masked_lm_loss"] = loss
    for model in report.models:
        for scores in model.sets:
            subject = f"{model.name}/{scores.set_name}"
            metrics[f"{subject}/masked_lm_loss"] = scores.loss
            metrics[f"{subject}/masked_lm_perplexity"] = scores.perplexity
            metrics[f"{subject}/masked_lm_accuracy"] = scores.accuracy
            metrics[f"{subject}/masked_lm_mrr"] = scores.mrr
            if scores.extra is not None:
                name = f"masked_lm_loss_rows_of_{scores.extra.max_seq_length}"
                metrics[f"{subject}/{name}"] = scores.extra.loss
            if scores.next_sentence_accuracy is not None:
                metrics[f"{subject}/next_sentence_accuracy"] = scores.next_sentence_accuracy
            if scores.recall_at_1 is not None:
                metrics[f"{subject}/retrieval_recall_at_1"] = scores.recall_at_1
    return metrics
