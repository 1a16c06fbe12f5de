"""From manifests to record files: which records a job reads, checked against its configuration."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.formats import (
    PartitionManifest,
    RecordFile,
    ShardManifest,
    Split,
    TrainingInputs,
    VocabularyInfo,
)
from pipeline_store.layout import StoreLayout
from training.errors import BadDataError, UserError


@dataclass(frozen=True)
class RecordSource:
    """One record file of one shard."""

    shard_key: str
    folder: str
    file: RecordFile

    @property
    def data_uri(self) -> str:
        """TFRecord file."""
        return uris.join(self.folder, self.file.data.path)

    @property
    def index_uri(self) -> str:
        """Offset index of the file."""
        return uris.join(self.folder, self.file.index.path)


def load_manifest(uri: str, store: StoreLayout, config: PipelineConfig) -> PartitionManifest:
    """Read a partition manifest and check that its records are made for this configuration.

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
    _check_lengths(manifest, uri, config)
    return manifest


def vocabulary_info(store: StoreLayout, config: PipelineConfig) -> VocabularyInfo:
    """Return the lineage's vocabulary, checked against the model.

    :raises FileNotFoundError: the lineage has none yet; the data job makes it.
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


def _check_lengths(
    manifest: PartitionManifest | ShardManifest, uri: str, config: PipelineConfig
) -> None:
    for name in ("max_seq_length", "max_predictions_per_seq"):
        found, wanted = getattr(manifest, name), getattr(config.masking, name)
        if found != wanted:
            raise UserError(
                f"{uri}: its records have {name}={found}, but masking.{name} is {wanted}; "
                "prepare the partition with this configuration, or change the setting."
            )


def record_sources(
    manifest: PartitionManifest, split: Split, store: StoreLayout, config: PipelineConfig
) -> list[RecordSource]:
    """Return a partition's record files of one split, in order of shard key; empty files left out.

    :raises FileNotFoundError: a shard manifest is gone.
    :raises UserError: a shard's record lengths are not the configuration's.
    """
    sources = []
    for shard_uri in map(store.resolve, manifest.shards):
        shard = ShardManifest.load(shard_uri)
        _check_lengths(shard, shard_uri, config)
        file = shard.files.get(split)
        if file is not None and file.records:
            sources.append(RecordSource(shard.shard_key, shard_uri.rpartition("/")[0], file))
    return sources


def training_sources(
    manifest_uris: list[str], store: StoreLayout, config: PipelineConfig
) -> list[RecordSource]:
    """Return the training records of several partitions: the ordered union, each shard once.

    Only the train split is read, so held-out documents cannot be trained on.

    :raises FileNotFoundError: a manifest is gone.
    :raises UserError: a manifest does not fit the configuration.
    :raises BadDataError: there is no record at all.
    """
    union: dict[str, RecordSource] = {}
    for uri in manifest_uris:
        manifest = load_manifest(uri, store, config)
        for source in record_sources(manifest, Split.TRAIN, store, config):
            union.setdefault(source.shard_key, source)
    if not union:
        raise BadDataError(
            f"No training records in {', '.join(manifest_uris)}: nothing to train on. Look at the "
            "counts of dropped documents in the manifests."
        )
    return list(union.values())


def fingerprint(sources: list[RecordSource]) -> str:
    """Return the hash of the ordered training records: shard keys and contents."""
    lines = [f"{source.shard_key} {source.file.data.sha256}\n" for source in sources]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def training_inputs(
    sources: list[RecordSource], vocabulary: VocabularyInfo, config: PipelineConfig
) -> TrainingInputs:
    """Return everything that the trained weights depend on, in readable form."""
    settings = {
        f"{section}.{name}": value
        for section, values in config.training_settings.items()
        for name, value in values.items()
    }
    return TrainingInputs(
        settings=settings,
        vocabulary_sha256=vocabulary.sha256,
        records={source.shard_key: source.file.data.sha256 for source in sources},
    )
