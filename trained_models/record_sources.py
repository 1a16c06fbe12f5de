"""Finds the record files that a job reads, by manifests, and checks them against its configuration.

It also describes the format of the records, and reads the tokens of a lineage's vocabulary,
verified.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from corpus.mlm_records import Feature, record_features
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import (
    FileDigest,
    FormatError,
    PartitionManifest,
    RecordFile,
    ShardManifest,
    Split,
    TrainingInputs,
    VocabularyInfo,
)
from pipeline_store.layout import StoreLayout
from trained_models.errors import BadDataError, UserError
from trained_models.phases import Phase, RowShape, phases, trained_shapes

NEXT_SENTENCE_PACKING = "segment_pair"


def predicts_next_sentence(config: PipelineConfig) -> bool:
    """Return whether next-sentence prediction is trained: rows are pairs of segments."""
    return config.masking.packing == NEXT_SENTENCE_PACKING


@dataclass(frozen=True)
class RecordSource:
    """One record file of one shard."""

    shard_key: str
    folder: str
    file: RecordFile
    next_sentence: bool
    token_counts: FileDigest | None = None
    """Token counts of the shard's training text, for the unigram model; None in older versions."""
    held_out_groups: FileDigest | None = None

    @property
    def data_uri(self) -> str:
        """TFRecord file."""
        return uris.join(self.folder, self.file.data.path)

    @property
    def index_uri(self) -> str:
        """Offset index of the file."""
        return uris.join(self.folder, self.file.index.path)

    @property
    def row_format(self) -> RowFormat:
        """The format of its records."""
        return RowFormat(
            max_seq_length=self.file.max_seq_length,
            max_predictions_per_seq=self.file.max_predictions_per_seq,
            masked=self.file.masked,
            next_sentence=self.next_sentence,
        )


@dataclass(frozen=True)
class PhaseSources:
    """The record files that one phase of a training reads, new ones and replayed ones."""

    phase: Phase
    new: list[RecordSource]
    replay: list[RecordSource]


def load_manifest(uri: str, store: StoreLayout, config: PipelineConfig) -> PartitionManifest:
    """Read a partition manifest and check that a model of this configuration can read its rows.

    Only rows of the main length are required, and how text was packed into them is not checked:
    models are compared on any held-out rows. For training see :func:`training_manifest`.

    :raises FileNotFoundError: there is no such manifest.
    :raises UserError: its lineage, vocabulary or record lengths are not the configuration's.
    """
    manifest = PartitionManifest.load(store.resolve(uri))
    lineage_id = config.model.lineage_id
    if manifest.lineage_id != lineage_id:
        raise UserError(
            f"{uri} belongs to lineage {manifest.lineage_id!r}, but model.lineage_id is "
            f"{lineage_id!r}; prepare the partition for this lineage."
        )
    vocabulary = vocabulary_info(store, config)
    if manifest.vocabulary_sha256 != vocabulary.sha256:
        raise UserError(
            f"{uri} was made with vocabulary {manifest.vocabulary_sha256}, but lineage "
            f"{lineage_id!r} has {vocabulary.sha256}; prepare the partition again."
        )
    _check_lengths(_row_lengths(manifest), uri, trained_shapes(config)[0])
    return manifest


def has_rows(manifest: PartitionManifest, shape: RowShape) -> bool:
    """Return whether a partition was prepared with rows of a shape."""
    return (shape.max_seq_length, shape.max_predictions_per_seq) in _row_lengths(manifest)


def _row_lengths(manifest: PartitionManifest) -> list[tuple[int, int]]:
    """Return the (max_seq_length, max_predictions_per_seq) that a partition has rows of."""
    lengths = [(manifest.max_seq_length, manifest.max_predictions_per_seq)]
    if manifest.extra_max_seq_length is not None:
        predictions = manifest.extra_max_predictions_per_seq or 0
        lengths.append((manifest.extra_max_seq_length, predictions))
    return lengths


def vocabulary_info(store: StoreLayout, config: PipelineConfig) -> VocabularyInfo:
    """Return the lineage's vocabulary, checked against the model.

    :raises FileNotFoundError: the lineage has none yet; a data job makes it.
    :raises UserError: it has more tokens than the model has embeddings.
    """
    uri = store.lineage(config.model.lineage_id).vocabulary_info
    info = VocabularyInfo.load(uri)
    if info.size > config.model.vocab_size:
        raise UserError(
            f"{uri}: the vocabulary has {info.size} tokens, but model.vocab_size is "
            f"{config.model.vocab_size}; token ids beyond the embedding give NaN losses. Use a "
            f"model.vocab_size of at least {info.size}."
        )
    return info


def _check_lengths(lengths: list[tuple[int, int]], uri: str, shape: RowShape) -> None:
    """Refuse records without the shape's (max_seq_length, max_predictions_per_seq)."""
    if (shape.max_seq_length, shape.max_predictions_per_seq) in lengths:
        return
    found = " and ".join(f"max_seq_length={s}, max_predictions_per_seq={p}" for s, p in lengths)
    raise UserError(
        f"{uri}: its records have {found}, but masking.{shape.prefix}max_seq_length is "
        f"{shape.max_seq_length} and masking.{shape.prefix}max_predictions_per_seq is "
        f"{shape.max_predictions_per_seq}; prepare the partition with this configuration, or "
        "change the setting."
    )


def record_sources(
    manifest: PartitionManifest,
    split: Split,
    store: StoreLayout,
    config: PipelineConfig,
    shape: RowShape | None = None,
) -> list[RecordSource]:
    """Return a partition's record files of one split, in order of shard key; empty files left out.

    :param shape: shape of the rows; None: the main one.
    :raises FileNotFoundError: a shard manifest is missing.
    :raises UserError: a shard has no records of that length.
    """
    shape = shape or trained_shapes(config)[0]
    next_sentence = manifest.packing == NEXT_SENTENCE_PACKING
    sources = []
    for uri in map(store.resolve, manifest.shards):
        shard = ShardManifest.load(uri)
        files = [file for file in shard.files if file.split is split]
        if files:
            shapes = [(file.max_seq_length, file.max_predictions_per_seq) for file in files]
            _check_lengths(shapes, uri, shape)
        file = shard.file(split, shape.max_seq_length)
        if file is not None and file.records:
            folder = uri.rpartition("/")[0]
            beside = shard.token_counts, shard.held_out_groups
            sources.append(RecordSource(shard.shard_key, folder, file, next_sentence, *beside))
    return sources


def phase_sources(
    manifest_uris: Sequence[str],
    replay_uris: Sequence[str],
    store: StoreLayout,
    config: PipelineConfig,
) -> list[PhaseSources]:
    """Return the record files of each phase of a training.

    A shard that new and replayed partitions have in common is new.

    :param manifest_uris: the partitions to train on.
    :param replay_uris: earlier ones, for ``training.replay_fraction`` of the rows; may be empty.
    :raises UserError: there is something to replay, but no share for it; see also
        :func:`training_sources`.
    """
    if replay_uris and not config.training.replay_fraction:
        raise UserError(
            f"{len(replay_uris)} manifests are given by --replay-manifest, but "
            "training.replay_fraction is 0, so no row of them would be read. Set the share, such "
            "as 0.1, or give them by --manifest to train on everything as one pool."
        )
    parts = []
    for phase in phases(config):
        new = training_sources(manifest_uris, store, config, phase)
        keys = {source.shard_key for source in new}
        old = training_sources(replay_uris, store, config, phase) if replay_uris else []
        parts.append(PhaseSources(phase, new, [s for s in old if s.shard_key not in keys]))
    return parts


def training_sources(
    manifest_uris: Sequence[str],
    store: StoreLayout,
    config: PipelineConfig,
    phase: Phase | None = None,
) -> list[RecordSource]:
    """Return the training records of several partitions: the ordered union, each shard once.

    Only the train split is read, so held-out documents cannot be trained on.

    :param phase: the phase whose row length is used; None: the main one.
    :raises FileNotFoundError: a manifest is missing.
    :raises UserError: a manifest cannot be trained on with the configuration.
    :raises BadDataError: there is no record at all.
    """
    manifests = {uri: training_manifest(uri, store, config) for uri in manifest_uris}
    return union_of_training_records(manifests, store, config, phase)


def training_manifest(uri: str, store: StoreLayout, config: PipelineConfig) -> PartitionManifest:
    """Read a partition manifest and check that this configuration can be trained on its rows.

    :raises FileNotFoundError: there is no such manifest.
    :raises UserError: it does not fit the configuration, has no rows of one of the lengths, or its
        rows are packed or masked in another way than the configuration says.
    """
    manifest = load_manifest(uri, store, config)
    for shape in trained_shapes(config):
        _check_lengths(_row_lengths(manifest), uri, shape)
    _check_recipe(manifest, uri, config)
    return manifest


def _check_recipe(manifest: PartitionManifest, uri: str, config: PipelineConfig) -> None:
    masking = config.masking
    if manifest.packing != masking.packing:
        raise UserError(
            f"{uri}: its rows are packed as {manifest.packing!r}, but masking.packing is "
            f"{masking.packing!r}; prepare the partition with this configuration, or change the "
            "setting."
        )
    if manifest.masked == masking.dynamic:
        found = "masked" if manifest.masked else "not masked"
        raise UserError(
            f"{uri}: its training rows are {found}, but masking.dynamic is "
            f"{str(masking.dynamic).lower()}; prepare the partition with this configuration, or "
            "change the setting."
        )
    written = manifest.settings.get("masking", {})
    for name in _written_settings(config):
        before, now = written.get(name), getattr(masking, name)
        if name in written and before != now:
            raise UserError(
                f"{uri}: its rows were written with masking.{name}={before!r}, but it is "
                f"{now!r} here and would have no effect; prepare the partition with this "
                "configuration, or change the setting."
            )


def _written_settings(config: PipelineConfig) -> list[str]:
    """Return the masking settings that only take effect in the data job."""
    masking = config.masking
    names = ["short_seq_prob"] if predicts_next_sentence(config) else []
    if not masking.dynamic:
        names += ["unit", "masked_lm_prob", "dupe_factor", "random_seed"]
        names += ["max_span_words"] if masking.unit == "span" else []
        names += ["mean_span_tokens"] if masking.unit == "sentinel" else []
    return names


def union_of_training_records(
    manifests: dict[str, PartitionManifest],
    store: StoreLayout,
    config: PipelineConfig,
    phase: Phase | None = None,
) -> list[RecordSource]:
    """Return the training records of partitions in order, each shard once, however masked.

    :param manifests: as :func:`load_manifest` returns them, by URI.
    :param phase: the phase whose row length is used; None: the main one.
    :raises BadDataError: there is no record at all.
    """
    union: dict[str, RecordSource] = {}
    shape = phase.shape if phase else None
    for manifest in manifests.values():
        for source in record_sources(manifest, Split.TRAIN, store, config, shape):
            union.setdefault(source.shard_key, source)
    if not union:
        raise BadDataError(
            f"No training records in {', '.join(manifests)}: nothing to train on. Look at the "
            "counts of dropped documents in the manifests."
        )
    return list(union.values())


def training_inputs(
    parts: Sequence[PhaseSources], vocabulary: VocabularyInfo, config: PipelineConfig
) -> TrainingInputs:
    """Return everything that the trained weights depend on, in readable form."""
    settings = {
        f"{section}.{name}": value
        for section, values in config.training_settings.items()
        for name, value in values.items()
    }
    pools: dict[str, dict[str, str]] = {"records": {}}
    pools |= {
        f"{part.phase.prefix}{name}": {source.shard_key: source.file.data.sha256 for source in pool}
        for part in parts
        for name, pool in (("records", part.new), ("replay_records", part.replay))
    }
    return TrainingInputs(settings=settings, vocabulary_sha256=vocabulary.sha256, **pools)


def fingerprint(inputs: TrainingInputs) -> str:
    """Return the hash of the ordered training records: shard keys and contents of each pool."""
    lines = []
    for name, records in inputs.pools.items():
        lines += [f"{name}\n"] if records and name != "records" else []
        lines += [f"{key} {sha256}\n" for key, sha256 in records.items()]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


@dataclass(frozen=True)
class RowFormat:
    """The format of records: arguments of :func:`corpus.mlm_records.record_features`, and sizes.

    ``masked``: False for training rows that the trainer masks. ``next_sentence``: a row is a pair
    of segments and has a label that says whether the second one follows the first.
    """

    max_seq_length: int
    max_predictions_per_seq: int
    masked: bool
    next_sentence: bool

    @property
    def features(self) -> tuple[Feature, ...]:
        """Return the features of every record."""
        return record_features(masked=self.masked, next_sentence=self.next_sentence)

    @property
    def sizes(self) -> dict[str, int]:
        """Return the number of values that each feature must have."""
        return {
            feature.name: feature.size(
                max_seq_length=self.max_seq_length,
                max_predictions_per_seq=self.max_predictions_per_seq,
            )
            for feature in self.features
        }


def lineage_tokens(store: StoreLayout, config: PipelineConfig) -> tuple[str, ...]:
    """Return the tokens of a lineage's vocabulary in order of id.

    :raises FileNotFoundError: the lineage has no vocabulary.
    :raises FormatError: its ``vocab.txt`` is not the one that the lineage began with.
    """
    info = vocabulary_info(store, config)
    uri = store.lineage(config.model.lineage_id).vocabulary
    content = uris.read(uri)
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != info.tokens_sha256:
        raise FormatError(
            f"{uri} is damaged: its SHA-256 is {sha256}; vocabulary.json says "
            f"{info.tokens_sha256}. Restore it; a lineage keeps one vocabulary for ever."
        )
    return split_tokens(content.decode())


def split_tokens(text: str) -> tuple[str, ...]:
    """Return the lines of a ``vocab.txt``; a byte order mark and Windows line ends are removed."""
    # Not splitlines: a token may hold what Unicode calls a line separator.
    lines = text.removeprefix("\ufeff").removesuffix("\n").split("\n")
    return tuple(line.removesuffix("\r") for line in lines)
