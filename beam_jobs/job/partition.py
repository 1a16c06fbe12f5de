"""Combines the shards of a partition: checks that they are usable and commits their manifest."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from beam_jobs.cli import JobArguments
from corpus.errors import BadDataError
from corpus.rows import waste
from corpus.text.drops import count_bad
from corpus.text.readable import Tally
from pipeline_store import identity, uris
from pipeline_store.formats import (
    DataStatistics,
    PartitionManifest,
    RecordFile,
    ShardManifest,
    ShardOutcome,
    ShardOutcomes,
    Split,
)
from pipeline_store.layout import LineageLayout

_PARALLEL_READS = 16
_NEW_WORDS = 1000

Key = TypeVar("Key")

logger = logging.getLogger(__name__)


def read_shards(manifest_uris: Sequence[str]) -> list[ShardManifest]:
    """Return the manifests in order of shard key; files with equal content share one."""
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        shards = list(pool.map(ShardManifest.load, sorted(set(manifest_uris))))
    return sorted(shards, key=lambda shard: shard.shard_key)


def tally(shard: ShardManifest) -> Tally:
    """Return a shard's tally."""
    return Tally(
        input_uri=shard.input_uri,
        input_bytes=shard.input_bytes,
        documents=shard.documents,
        dropped=shard.dropped,
    )


def combine(
    arguments: JobArguments,
    vocabulary_sha256: str,
    shards: Sequence[ShardManifest],
    found: ShardOutcomes,
) -> PartitionManifest:
    """Return the manifest of a partition that consists of these shards.

    :param found: the job's decisions on their documents.
    """
    config, store = arguments.config, arguments.store
    masking = config.masking
    main, extra = masking.max_seq_length, masking.extra_max_seq_length
    dropped: Counter[str] = Counter()
    for shard in shards:
        dropped.update(shard.dropped)
    return PartitionManifest(
        partition=arguments.partition,
        lineage_id=config.model.lineage_id,
        vocabulary_sha256=vocabulary_sha256,
        config_sha256=config.data_sha256,
        settings=config.data_settings,
        packing=masking.packing,
        masked=not masking.dynamic,
        max_seq_length=main,
        max_predictions_per_seq=masking.max_predictions_per_seq,
        extra_max_seq_length=extra,
        extra_max_predictions_per_seq=extra and masking.extra_max_predictions_per_seq,
        shards=[store.shard_manifest(shard.shard_key) for shard in shards],
        documents=sum(shard.documents for shard in shards),
        records={s: sum(f.records for f in _files(shards, s, main)) for s in Split},
        tokens={s: sum(f.tokens for f in _files(shards, s, main)) for s in Split},
        extra_records={s: sum(f.records for f in _files(shards, s, extra)) for s in Split},
        extra_tokens={s: sum(f.tokens for f in _files(shards, s, extra)) for s in Split},
        dropped=dict(sorted(dropped.items())),
        duplicate_index=found.duplicate_index,
        split_by=found.split_by,
        statistics=add_statistics([shard.statistics for shard in shards]),
    )


def _files(
    shards: Sequence[ShardManifest], split: Split, max_seq_length: int | None
) -> list[RecordFile]:
    """Return the shards' record files of a split and row length."""
    if max_seq_length is None:
        return []
    files = [shard.file(split, max_seq_length) for shard in shards]
    return [file for file in files if file is not None]


def add_statistics(parts: Sequence[DataStatistics]) -> DataStatistics:
    """Return the sums of counts, the most frequent new words, and the greatest length."""
    new_words = _add(part.new_words for part in parts)
    ranked = sorted(new_words.items(), key=lambda item: (-item[1], item[0]))
    return DataStatistics(
        document_tokens=dict(sorted(_add(part.document_tokens for part in parts).items())),
        row_tokens=dict(sorted(_add(part.row_tokens for part in parts).items())),
        text_tokens=sum(part.text_tokens for part in parts),
        unknown_tokens=sum(part.unknown_tokens for part in parts),
        new_words=dict(ranked[:_NEW_WORDS]),
        longest_document=max((part.longest_document for part in parts), default=0),
    )


def _add(parts: Iterable[Mapping[Key, int]]) -> Counter[Key]:
    total: Counter[Key] = Counter()
    for part in parts:
        total.update(part)
    return total


def warn_of_oddities(outcomes: Sequence[ShardOutcome], shards: Sequence[ShardManifest]) -> None:
    """Warn of files with unreadable documents, without documents, or equal to another file."""
    by_key = {shard.shard_key: shard for shard in shards}
    first: dict[str, str] = {}
    for outcome in outcomes:
        folder = outcome.manifest_uri.rpartition("/")[0]
        shard = by_key[folder.rpartition("/")[2]]
        if same := first.get(shard.shard_key):
            logger.warning("%s is the same as %s; it counts once", outcome.input_uri, same)
            continue
        first[shard.shard_key] = outcome.input_uri
        if shard.dead_letter is not None:
            logger.warning(
                "%s: %d of %d documents cannot be read, see %s",
                outcome.input_uri,
                count_bad(shard.dropped),
                shard.documents,
                uris.join(folder, shard.dead_letter.path),
            )
        if not shard.documents:
            logger.warning("%s holds no document", outcome.input_uri)


def check_usable(
    manifest: PartitionManifest, inputs: Sequence[str], max_unknown_fraction: float
) -> None:
    """Refuse a partition from which nothing can be learned; warn if nothing can be measured.

    :raises BadDataError: there is no training record, or too much of the text is ``[UNK]``.
    """
    statistics = manifest.statistics
    unknown = statistics.unknown_tokens / max(1, statistics.text_tokens)
    if unknown > max_unknown_fraction:
        raise BadDataError(
            f"partition {manifest.partition}: {unknown:.1%} of its {statistics.text_tokens} tokens "
            f"are [UNK], over vocabulary.max_unknown_fraction={max_unknown_fraction}: it is in a "
            f"script that the vocabulary of lineage {manifest.lineage_id!r} does not have. Leave "
            "such text out (corpus.keep_languages), or begin a lineage with a vocabulary for it."
        )
    if not manifest.records[Split.TRAIN]:
        raise BadDataError(
            f"partition {manifest.partition}: no training record in {len(inputs)} files "
            f"({manifest.documents} documents; dropped: {manifest.dropped or 'none'}), such as "
            f"{inputs[0]}."
        )
    if not manifest.records[Split.VALIDATION]:
        logger.warning(
            "partition %s: none of its %d documents fell into the validation split, so a model "
            "trained on it cannot be judged; is a blank line missing between documents?",
            manifest.partition,
            manifest.documents,
        )


def say_what_it_is(manifest: PartitionManifest) -> None:
    """Log how much of a partition is held out, and warn of what its rows waste."""
    held_out, rows = manifest.records[Split.VALIDATION], sum(manifest.records.values())
    logger.info(
        "split by %s (corpus.split_by): %d of %d rows are held out (%.1f %%)",
        manifest.split_by,
        held_out,
        rows,
        100 * held_out / max(1, rows),
    )
    for line in waste.warnings(manifest):
        # The log shows no levels.
        logger.warning("WARNING: partition %s: %s", manifest.partition, line)


def commit(manifest: PartitionManifest, lineage: LineageLayout) -> tuple[PartitionManifest, str]:
    """Store the manifest unless one of these shards exists; return the stored one and its URI."""
    keys = [uri.split("/")[-2] for uri in manifest.shards]
    uri = lineage.manifest(manifest.partition, identity.manifest_id(manifest.partition, keys))
    if manifest.create(uri):
        return manifest, uri
    return PartitionManifest.load(uri), uri
