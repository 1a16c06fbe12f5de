"""Plans the remaining work, in one place, from the signatures of all input files."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from beam_jobs.job.shards import ShardWork, find_done, plan_shard
from corpus.duplicates.decisions import Decided, decide
from corpus.duplicates.indexes import (
    NamedIndex,
    list_indexes,
    load_documents,
    store_documents,
)
from corpus.duplicates.signatures import Signatures
from corpus.duplicates.signing import SignedInput, find_signatures
from corpus.text.lineage_rules import kept_unit, load_manifests
from corpus.text.split_units import FileOfDocuments, file_draw, unit_of_new_lineage
from pipeline_config import PipelineConfig
from pipeline_store.formats import (
    DuplicateIndex,
    FormatError,
    ShardDecisions,
    ShardOutcome,
    SplitUnit,
)
from pipeline_store.layout import LineageLayout, StoreLayout

_PARALLEL_CALLS = 16

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plan:
    """The remaining work on a partition.

    ``done``: shards of earlier runs, and further names of files with equal content. ``work``:
    shards to be made. ``kept_sides``: number of used documents that are not on the side drawn
    from the content of their unit. ``split_by``: the unit that is held out as a whole.
    """

    done: list[ShardOutcome]
    work: list[ShardWork]
    duplicate_index: DuplicateIndex | None
    kept_sides: int
    split_by: SplitUnit


def make_plan(
    inputs: Iterable[SignedInput],
    *,
    config: PipelineConfig,
    store: StoreLayout,
    partition: str,
    vocabulary_sha256: str,
) -> Plan:
    """Decide on every document, and determine which shards are done already.

    :raises FormatError: a stored file is damaged.
    :raises BadDataError: a shard is done, but its files are missing.
    """
    ordered = sorted(inputs, key=lambda signed: (*signed.rank, signed.uri))
    files = {signed.rank: signed for signed in reversed(ordered)}
    different = sorted(files.values(), key=lambda signed: signed.rank)
    found = _decide(different, config, store, partition)
    decisions = found.shards
    shards = [
        plan_shard(signed, decided.sha256, config, vocabulary_sha256)
        for signed, decided in zip(different, decisions, strict=True)
    ]
    with ThreadPoolExecutor(_PARALLEL_CALLS) as pool:
        are_done = list(pool.map(lambda shard: find_done(store, shard.key) is not None, shards))
    work = [shard for shard, is_done in zip(shards, are_done, strict=True) if not is_done]
    _store_decisions(store, work, dict(zip((d.sha256 for d in decisions), decisions, strict=True)))
    to_do = {shard.source.uri for shard in work}
    keys = {shard.source.rank: shard.key for shard in shards}
    done = [
        ShardOutcome(
            input_uri=signed.uri,
            manifest_uri=store.shard_manifest(keys[signed.rank]),
            reused=True,
        )
        for signed in ordered
        if signed.uri not in to_do
    ]
    return Plan(done, work, found.owned, found.kept_sides, found.split_by)


class _Found(NamedTuple):
    shards: list[ShardDecisions]
    owned: DuplicateIndex | None
    kept_sides: int
    split_by: SplitUnit


def _decide(
    different: Sequence[SignedInput], config: PipelineConfig, store: StoreLayout, partition: str
) -> _Found:
    if config.corpus.duplicates == "keep":
        nothing = ShardDecisions(duplicates=[], near_duplicates=[])
        return _Found([nothing for _ in different], None, 0, "document")
    with ThreadPoolExecutor(_PARALLEL_CALLS) as pool:
        files = list(pool.map(lambda signed: _signatures(store, signed), different))
    lineage = store.lineage(config.model.lineage_id)
    known = dict(zip(different, files, strict=True))
    split_by = choose_unit(config, lineage, partition, known)
    decided, snapshot = decide_partition(files, config, lineage, partition, split_by)
    _warn_of_gaps(snapshot)
    index = store_documents(lineage, partition, decided.owned, snapshot)
    return _Found(decided.shards, index, decided.kept_sides, split_by)


def choose_unit(
    config: PipelineConfig,
    lineage: LineageLayout,
    partition: str,
    files: Mapping[SignedInput, Signatures],
) -> SplitUnit:
    """Return the unit that is held out as a whole: the lineage's, or the one to start it with.

    :raises UserError: the lineage has another unit than the configuration asks for.
    """
    kept = kept_unit(config, load_manifests(lineage).values(), partition)
    if kept is not None:
        return kept
    return unit_of_new_lineage(
        config.corpus,
        (
            FileOfDocuments(
                signed.input_format,
                len(signatures.ordinals),
                file_draw(signatures.hashes.astype("<u8").tobytes()),
            )
            for signed, signatures in files.items()
        ),
    )


def decide_partition(
    files: Sequence[Signatures],
    config: PipelineConfig,
    lineage: LineageLayout,
    partition: str,
    split_by: SplitUnit,
) -> tuple[Decided, list[NamedIndex]]:
    """Decide on a partition's documents; return also the earlier partitions' indexes."""
    indexes = list_indexes(lineage)
    earlier = [named for named in indexes if named.partition < partition]
    others = [named for named in indexes if named.partition >= partition]
    decided = decide(
        files,
        load_documents(lineage, earlier),
        load_documents(lineage, others),
        config.corpus,
        split_by,
    )
    return decided, earlier


def _signatures(store: StoreLayout, signed: SignedInput) -> Signatures:
    signatures = find_signatures(store, signed)
    if signatures is None:
        raise FormatError(
            f"{store.signatures(signed.signature_key)}, the signatures of {signed.uri}, was there "
            "and is gone; somebody deletes from the store while it is used. Run again."
        )
    return signatures


def _warn_of_gaps(snapshot: Sequence[NamedIndex]) -> None:
    without = sorted({named.partition for named in snapshot if named.index is None})
    if without:
        logger.warning(
            "copies of documents of earlier partitions that were prepared with "
            "corpus.duplicates=keep are not found: %s",
            ", ".join(without),
        )


def _store_decisions(
    store: StoreLayout, work: Sequence[ShardWork], decisions: dict[str, ShardDecisions]
) -> None:
    needed = {shard.decisions_sha256 for shard in work}
    with ThreadPoolExecutor(_PARALLEL_CALLS) as pool:
        list(pool.map(lambda sha256: decisions[sha256].create(store.decisions(sha256)), needed))
