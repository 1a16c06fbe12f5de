"""The dry run: determines what a run would do, without changing anything."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from beam_jobs.cli import JobArguments
from beam_jobs.job.planning import choose_unit, decide_partition
from beam_jobs.job.shards import find_done, plan_shard
from corpus.duplicates.signing import SignedInput, find_signatures, identify
from corpus.text.inputs import list_inputs, refuse_misread
from corpus.tokens.lineage_vocabulary import load_vocabulary
from pipeline_store.formats import ShardDecisions

_PARALLEL_READS = 16


def list_shards(arguments: JobArguments) -> dict[str, Any]:
    """Return the state of every input file, and the duplicates known so far.

    Files that no run has read have no signatures yet. Until they do, it is unknown which documents
    of the other files are copies of theirs, so the numbers are estimates.
    """
    config, store = arguments.config, arguments.store
    inputs = list_inputs(arguments.pattern, arguments.partition, store)
    refuse_misread(inputs, config)
    vocabulary = load_vocabulary(config, store)
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        identified = list(pool.map(lambda uri: identify(uri, config), inputs))
    decisions = _decisions(arguments, identified)
    keys = {
        signed.uri: plan_shard(signed, decisions[signed.rank].sha256, config, vocabulary.sha256).key
        for signed in identified
        if signed.rank in decisions
    }
    done = {uri: uri in keys and find_done(store, keys[uri]) is not None for uri in inputs}
    to_do = {signed.rank: signed for signed in identified if not done[signed.uri]}
    return {
        "partition": arguments.partition,
        "dry_run": True,
        "shards": {uri: "done" if done[uri] else "to do" for uri in inputs},
        "shards_to_process": len(to_do),
        "shards_reused": sum(done.values()),
        "bytes_to_process": sum(signed.bytes for signed in to_do.values()),
        "estimated": any(signed.rank not in decisions for signed in identified),
        "duplicates": sum(len(found.duplicates) for found in decisions.values()),
        "near_duplicates": sum(len(found.near_duplicates) for found in decisions.values()),
    }


def _decisions(
    arguments: JobArguments, identified: list[SignedInput]
) -> dict[tuple[str, str], ShardDecisions]:
    """Return the decisions on the files that have signatures, by rank."""
    config, store = arguments.config, arguments.store
    if config.corpus.duplicates == "keep":
        nothing = ShardDecisions(duplicates=[], near_duplicates=[])
        return {signed.rank: nothing for signed in identified}
    different = {signed.rank: signed for signed in identified}
    found = {rank: find_signatures(store, different[rank]) for rank in sorted(different)}
    files = {rank: signatures for rank, signatures in found.items() if signatures is not None}
    if not files:
        return {}
    lineage = store.lineage(config.model.lineage_id)
    known = {different[rank]: signatures for rank, signatures in files.items()}
    split_by = choose_unit(config, lineage, arguments.partition, known)
    decided, _ = decide_partition(
        list(files.values()), config, lineage, arguments.partition, split_by
    )
    return dict(zip(files, decided.shards, strict=True))
