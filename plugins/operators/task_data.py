"""Lists the data that a task has read and written, from the records in the store.

Data without a record is left out: a skipped task has written nothing, whatever its kind. Data is
named by URI, so that one task's output is recognized as another's input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from corpus.mlm_records.schema import record_features
from corpus.partitions import input_patterns
from model_registry import importing
from pipeline_config import parse_config
from pipeline_store import uris
from pipeline_store.formats import (
    EvaluationReport,
    FileDigest,
    InitialWeights,
    ModelExports,
    ModelVersion,
    OutcomeKind,
    PartitionManifest,
    PreparedInput,
    ProbeReport,
    ProductionPointer,
    RunApproval,
    RunOutcome,
    RunPlan,
    RunRecord,
    ShardManifest,
    TaskManifest,
    TrainingResult,
    Verdict,
    VerdictKind,
    VocabularyInfo,
)
from pipeline_store.layout import LineageLayout, RunLayout, StoreLayout

MAX_FILES = 100
"""A partition with more input files is listed by folder: each file takes a read of the store."""

_TRAINED_ON = "trained on partition "


@dataclass(frozen=True)
class Column:
    """A feature of a file's records."""

    name: str
    type: str


@dataclass(frozen=True)
class Check:
    """A requirement on data, and whether it holds."""

    name: str
    holds: bool
    expected: str = ""
    actual: str = ""


@dataclass(frozen=True)
class Data:
    """A file or a folder, with what is known about its content.

    :ivar version: identifies the content, and changes with it.
    :ivar tokens: real tokens in its records, padding excluded.
    :ivar is_replaced: whether writing it replaced earlier content.
    """

    uri: str
    about: str
    version: str = ""
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    tokens: int | None = None
    columns: tuple[Column, ...] = ()
    checks: tuple[Check, ...] = ()
    is_replaced: bool = False


@dataclass(frozen=True)
class TaskData:
    """The data that a task has read and written."""

    inputs: list[Data] = field(default_factory=list)
    outputs: list[Data] = field(default_factory=list)


def of_vocabulary(run: RunLayout) -> TaskData:
    """Return the vocabulary with its text or source; alone as input if another run made it."""
    record, store, lineage = _places(run)
    info = VocabularyInfo.load_or_none(lineage.vocabulary_info)
    made = _vocabulary(lineage)
    if info is None or made is None:
        return TaskData()
    if not info.source.startswith(_TRAINED_ON):
        given = Data(store.resolve(info.source), "vocabulary from elsewhere")
        return TaskData([given], [made])
    partition = info.source.removeprefix(_TRAINED_ON)
    # In a backfill the first run makes it, from the oldest partition.
    if partition != record.partition and record.backfill is None:
        return TaskData([made])
    return TaskData(list(_folders(run, store, partition)), [made])


def of_prepare(run: RunLayout) -> TaskData:
    """Return the raw files and the partition's records."""
    prepared = PreparedInput.load_or_none(run.prepared_partition)
    record, store, lineage = _places(run)
    manifest = PartitionManifest.load_or_none(prepared.manifest) if prepared else None
    if prepared is None or manifest is None:
        return TaskData(list(_folders(run, store, record.partition)))
    if len(manifest.shards) > MAX_FILES:
        inputs, size = list(_folders(run, store, record.partition)), None
    else:
        shards = [ShardManifest.load(uri) for uri in manifest.shards]
        inputs = [_raw_file(shard) for shard in shards]
        size = sum(digest.bytes for shard in shards for digest in shard.digests())
    return TaskData(
        [*inputs, *_found(_vocabulary(lineage))], [_records(prepared.manifest, manifest, size)]
    )


def of_plan(run: RunLayout) -> TaskData:
    """Return the plan and the data that it names; without a plan, the run's own records."""
    plan = RunPlan.load_or_none(run.plan)
    if plan is None:
        return TaskData(list(_own_records(run)))
    named = _manifests(plan.trained, plan.replayed)
    return TaskData([*named, *_parent(run, plan)], [Data(run.plan, "plan of a run")])


def of_import(run: RunLayout) -> TaskData:
    """Return the imported weights and the version made from them, if this run made one."""
    record, store, lineage = _places(run)
    config = parse_config(uris.read(run.config), run.config)
    own = importing.record_of(config, run_id=record.run_key, partition=record.partition)
    imported = store.run(own.run_key)
    plan = RunPlan.load_or_none(imported.plan)
    if config.model.init_checkpoint is None or plan is None:
        return TaskData()
    source = Data(store.resolve(config.model.init_checkpoint), "weights from elsewhere")
    inputs = [source, *_manifests(plan.evaluated), *_found(_vocabulary(lineage))]
    return TaskData(inputs, list(_put_into_use(imported, lineage)))


def of_train(run: RunLayout) -> TaskData:
    """Return the records and weights that training began with, and the candidate."""
    plan = RunPlan.load_or_none(run.plan)
    if plan is None:
        return TaskData(list(_own_records(run)))
    _, _, lineage = _places(run)
    inputs = [
        Data(run.plan, "plan of a run"),
        *_manifests(plan.trained, plan.replayed, plan.scored),
        *_found(_vocabulary(lineage)),
        *_beginning(run, plan),
    ]
    return TaskData(inputs, list(_candidate(run)))


def of_evaluate(run: RunLayout) -> TaskData:
    """Return the models and held-out records, and the evaluation report."""
    plan = RunPlan.load_or_none(run.plan)
    if plan is None:
        return TaskData()
    inputs = [*_candidate(run), *_parent(run, plan), *_manifests(plan.evaluated)]
    return TaskData(inputs, list(_evaluation(run, plan)))


def of_probe(run: RunLayout) -> TaskData:
    """Return the models and labeled tasks, and the probe report."""
    plan = RunPlan.load_or_none(run.plan)
    if plan is None:
        return TaskData()
    config = parse_config(uris.read(run.config), run.config)
    tasks = [prepared_task(run, name) for name in config.promotion.probe_tasks]
    inputs = [*_candidate(run), *_parent(run, plan), *(found for one in tasks for found in one)]
    return TaskData(inputs, list(_probe(run, plan)))


def of_judge(run: RunLayout) -> TaskData:
    """Return the reports and the verdict."""
    plan = RunPlan.load_or_none(run.plan)
    if plan is None:
        return TaskData()
    return TaskData([*_evaluation(run, plan), *_probe(run, plan)], list(_verdict(run, plan)))


def of_approve(run: RunLayout) -> TaskData:
    """Return the verdict, and the answer of a person who was asked."""
    plan = RunPlan.load_or_none(run.plan)
    return TaskData(list(_verdict(run, plan)) if plan else [], list(_approval(run)))


def of_export(run: RunLayout) -> TaskData:
    """Return the candidate, and its exports in other formats."""
    return TaskData(list(_candidate(run)), list(_exports(run)))


def of_promote(run: RunLayout) -> TaskData:
    """Return the parts of a version; and the version and the pointer, if this run promoted it."""
    _, _, lineage = _places(run)
    plan = RunPlan.load_or_none(run.plan)
    reports = [*_verdict(run, plan), *_evaluation(run, plan)] if plan else []
    inputs = [*_candidate(run), *_exports(run), *reports, *_approval(run)]
    return TaskData(inputs, list(_put_into_use(run, lineage)))


def of_tasks(run: RunLayout, names: Iterable[str]) -> TaskData:
    """Return the files of labeled tasks, and their examples as records."""
    data = TaskData()
    for name in names:
        for prepared in prepared_task(run, name):
            manifest = TaskManifest.load(prepared.uri)
            files = {file.uri: file for split in manifest.inputs.values() for file in split}
            data.inputs.extend(
                Data(file.uri, f"task {name}", version=file.sha256, bytes=file.bytes, files=1)
                for file in files.values()
            )
            data.outputs.append(prepared)
    return data


def of_rollback(run: RunLayout, lineage: LineageLayout) -> TaskData:
    """Return the version that a person's request has put into use, and the pointer."""
    pointer = ProductionPointer.load_or_none(lineage.production)
    if pointer is None or pointer.request != run.root.rpartition("/")[2]:
        return TaskData()
    version_id = pointer.version_id
    return TaskData(list(_version(lineage, version_id)), [_pointer(lineage, version_id)])


def prepared_task(run: RunLayout, name: str) -> Iterator[Data]:
    """Yield the records that a run has prepared from a labeled task, if it has."""
    prepared = PreparedInput.load_or_none(run.prepared_task(name))
    manifest = TaskManifest.load_or_none(prepared.manifest) if prepared else None
    if prepared is not None and manifest is not None:
        splits = manifest.splits.values()
        yield Data(
            prepared.manifest,
            f"examples of task {name}",
            version=manifest.key,
            rows=sum(split.records for split in splits),
            bytes=_size(split.data for split in splits),
            files=len(splits),
            tokens=sum(split.tokens for split in splits),
        )


def _places(run: RunLayout) -> tuple[RunRecord, StoreLayout, LineageLayout]:
    record, store = RunRecord.load(run.record), StoreLayout(run.store_root)
    return record, store, store.lineage(record.lineage_id)


def _found(data: Data | None) -> list[Data]:
    return [] if data is None else [data]


def _folders(run: RunLayout, store: StoreLayout, partition: str) -> Iterator[Data]:
    """Yield the folders of a partition's text, without listing them."""
    config = parse_config(uris.read(run.config), run.config)
    patterns = input_patterns(config.corpus.input_pattern, partition, store)
    for folder in dict.fromkeys(map(uris.pattern_folder, patterns)):
        yield Data(folder, f"text of partition {partition}")


def _raw_file(shard: ShardManifest) -> Data:
    checks = [
        Check(f"no document is left out: {reason}", count == 0, "0", str(count))
        for reason, count in sorted(shard.dropped.items())
    ]
    return Data(
        shard.input_uri,
        "text",
        version=shard.input_sha256,
        rows=shard.documents,
        bytes=shard.input_bytes,
        files=1,
        checks=tuple(checks),
    )


def _records(uri: str, manifest: PartitionManifest, size: int | None = None) -> Data:
    features = record_features(
        masked=manifest.masked, next_sentence=manifest.packing == "segment_pair"
    )
    lengths = {
        "max_seq_length": manifest.max_seq_length,
        "max_predictions_per_seq": manifest.max_predictions_per_seq,
    }
    return Data(
        uri,
        f"records of partition {manifest.partition}",
        version=manifest.content_sha256,
        rows=sum(manifest.records.values()) + sum(manifest.extra_records.values()),
        bytes=size,
        files=len(manifest.shards),
        tokens=sum(manifest.tokens.values()) + sum(manifest.extra_tokens.values()),
        columns=tuple(Column(one.name, f"{one.dtype}[{one.size(**lengths)}]") for one in features),
    )


def _manifests(*by_name: Mapping[str, str]) -> Iterator[Data]:
    """Yield the records of manifests, each once."""
    for uri in dict.fromkeys(uri for named in by_name for uri in named.values()):
        manifest = PartitionManifest.load_or_none(uri)
        yield Data(uri, "records") if manifest is None else _records(uri, manifest)


def _own_records(run: RunLayout) -> Iterator[Data]:
    prepared = PreparedInput.load_or_none(run.prepared_partition)
    if prepared is not None:
        yield from _manifests({"": prepared.manifest})


def _vocabulary(lineage: LineageLayout) -> Data | None:
    info = VocabularyInfo.load_or_none(lineage.vocabulary_info)
    if info is None:
        return None
    about = f"vocabulary of lineage {lineage.root.rpartition('/')[2]}"
    return Data(lineage.vocabulary, about, version=info.sha256, rows=info.size)


def _beginning(run: RunLayout, plan: RunPlan) -> Iterator[Data]:
    """Yield the weights that training began with; none: random ones."""
    if plan.parent_version is not None:
        yield from _parent(run, plan)
    elif (weights := InitialWeights.load_or_none(run.training.initial_weights)) is not None:
        yield Data(weights.uri, "weights from elsewhere")


def _parent(run: RunLayout, plan: RunPlan) -> Iterator[Data]:
    if plan.parent_version is not None:
        _, _, lineage = _places(run)
        yield from _version(lineage, plan.parent_version)


def _version(lineage: LineageLayout, version_id: str) -> Iterator[Data]:
    model = ModelVersion.load_or_none(lineage.model(version_id))
    if model is not None:
        yield Data(
            lineage.version(version_id),
            f"model of lineage {model.lineage_id}, partitions seen: "
            f"{', '.join(model.partitions_seen)}",
            version=version_id,
            bytes=_size(model.files),
            files=len(model.files),
        )


def _pointer(lineage: LineageLayout, version_id: str) -> Data:
    return Data(
        lineage.production, "which version is in use", version=version_id, rows=1, is_replaced=True
    )


def _put_into_use(run: RunLayout, lineage: LineageLayout) -> Iterator[Data]:
    """Yield the version that a run has put into use, and the pointer, if it has."""
    outcome = RunOutcome.load_or_none(run.outcome)
    if outcome is None or outcome.outcome is not OutcomeKind.PROMOTED or not outcome.version_id:
        return
    yield from _version(lineage, outcome.version_id)
    yield _pointer(lineage, outcome.version_id)


def _candidate(run: RunLayout) -> Iterator[Data]:
    result = TrainingResult.load_or_none(run.training.result)
    if result is not None:
        yield Data(
            run.training.root,
            f"candidate after {result.train_steps} steps",
            version=result.weights_sha256,
        )


def _evaluation(run: RunLayout, plan: RunPlan) -> Iterator[Data]:
    uri = run.evaluation(plan.parent_version)
    report = EvaluationReport.load_or_none(uri)
    if report is not None:
        documents = sum(len(one.document_ids) for model in report.models for one in model.sets)
        yield Data(uri, "losses by held-out document", rows=documents)


def _probe(run: RunLayout, plan: RunPlan) -> Iterator[Data]:
    uri = run.probe(plan.parent_version)
    report = ProbeReport.load_or_none(uri)
    if report is not None:
        yield Data(uri, "scores on labelled tasks", rows=len(report.tasks))


def _verdict(run: RunLayout, plan: RunPlan) -> Iterator[Data]:
    uri = run.verdict(plan.parent_version)
    verdict = Verdict.load_or_none(uri)
    if verdict is not None:
        is_better = verdict.verdict is VerdictKind.PROMOTED
        check = Check("the candidate may replace the model in use", is_better)
        yield Data(uri, verdict.reason, version=str(verdict.verdict), checks=(check,))


def _approval(run: RunLayout) -> Iterator[Data]:
    approval = RunApproval.load_or_none(run.approval)
    if approval is not None:
        yield Data(run.approval, "a person's answer", version=str(approval.answer))


def _exports(run: RunLayout) -> Iterator[Data]:
    exports = ModelExports.load_or_none(run.exports.record)
    if exports is not None:
        files = [file for one in exports.formats.values() for file in one.files]
        yield Data(
            run.exports.root,
            f"candidate as {', '.join(exports.formats) or 'it is'}",
            version=exports.files_sha256,
            bytes=_size(files),
            files=len(files),
        )


def _size(files: Iterable[FileDigest]) -> int:
    return sum(file.bytes for file in files)
