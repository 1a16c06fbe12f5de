"""The rows of the data benchmark: the runs that each needs, and the value computed from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from beam_jobs.job.engines import processes_for
from corpus.tokens.bpe import train_bpe
from verification.benchmarks.commands import say
from verification.benchmarks.data.bench import PACKINGS, Bench
from verification.benchmarks.data.corpus import CorpusTooSmallError
from verification.benchmarks.data.processes import Usage
from verification.benchmarks.noise import largest, spread
from verification.benchmarks.results import Row

_TF_MODELS = "tf-models-official create_pretraining_data"
_COLLATOR = "transformers DataCollatorForLanguageModeling"
_RAW = "tokenizers encode_batch_fast, one thread"
# The vocabulary size of RoBERTa.
_BPE_SIZE = 50265
PeerRun = Callable[[int], tuple[Usage, int]]
_PLAIN_PACKINGS = PACKINGS[:2]


def _spread(*usages: Usage) -> float | None:
    return largest(*(spread(usage.rounds_s) for usage in usages))


def _versus(name: str, bench: Bench, size: int, peer: str, run: PeerRun) -> Row:
    """Compare the tokens per second of our sentence pairs with a peer, both from start to exit."""
    ours = bench.ours(size, "segment_pair")
    used, (theirs, their_tokens) = ours.usage, run(size)
    value, other = ours.tokens / used.wall_s, their_tokens / theirs.wall_s
    more = {
        "input_mb": bench.megabytes(size),
        "tokens": ours.tokens,
        "wall_s": used.wall_s,
        "cpu_s": used.cpu_s,
        "peer_value": other,
        "peer_tokens": their_tokens,
        "peer_wall_s": theirs.wall_s,
        "peer_cpu_s": theirs.cpu_s,
        "peer_peak_rss_mb": theirs.peak_rss_mb,
    }
    return Row(
        name,
        value,
        "tokens/s",
        peer,
        value / other,
        (ours.tokens / used.cpu_s) / (their_tokens / theirs.cpu_s),
        (ours.tokens / used.best_s) / (their_tokens / theirs.best_s),
        _spread(used, theirs),
        peak_rss_mb=used.peak_rss_mb,
        details=more,
    )


def nsp_vs_tf_models(bench: Bench) -> Iterator[Row]:
    """Yield rows that compare sentence pairs with the script that many use for them."""
    for number, size in enumerate(bench.sizes.nsp):
        name = "ours_nsp_vs_tf_models" + (f"_{size}mb" if number else "")
        yield _versus(name, bench, size, _TF_MODELS, bench.tf_models)


def nsp_vs_hf_collator(bench: Bench) -> Iterator[Row]:
    """Yield a row that compares sentence pairs with a peer of plain rows and no TFRecords."""
    name, size = "ours_nsp_vs_hf_collator", bench.sizes.collator
    yield _versus(name, bench, size, _COLLATOR, bench.hf_collator)


def packed_vs_raw_tokenizer(bench: Bench) -> Iterator[Row]:
    """Yield rows that compare the whole job with only the tokenizer.

    Tokens of the text are counted, each once.
    """
    for number, size in enumerate(bench.sizes.packed):
        peer, raw = bench.tokenizer("raw_tokenizer", size)
        for packing in _PLAIN_PACKINGS:
            ours = bench.ours(size, packing)
            usage = ours.usage
            value, other = ours.text_tokens / usage.wall_s, raw["tokens"] / raw["seconds"]
            name = "ours_packed_vs_raw_tokenizer" + (f"_{size}mb" if number else "")
            if packing != _PLAIN_PACKINGS[0]:
                name += f"_{packing}"
            yield Row(
                name,
                value,
                "tokens/s",
                _RAW,
                value / other,
                raw["cpu_seconds"] / usage.cpu_s,
                (ours.text_tokens / usage.best_s) / (raw["tokens"] / peer.best_s),
                _spread(usage, peer),
                peak_rss_mb=usage.peak_rss_mb,
                details={
                    "input_mb": bench.megabytes(size),
                    "tokens": ours.text_tokens,
                    "wall_s": usage.wall_s,
                    "cpu_s": usage.cpu_s,
                    "peer_value": other,
                    "peer_tokens": raw["tokens"],
                    "peer_wall_s": raw["seconds"],
                    "peer_cpu_s": raw["cpu_seconds"],
                    "peer_texts": raw["texts"],
                },
            )


def tokenizer_vs_raw_tokenizer(bench: Bench) -> Iterator[Row]:
    """Yield a row that compares only the tokenizers, on text in memory, without start-up."""
    yield _tokenizers("tokenizer_vs_raw_tokenizer", bench, None)


def bpe_vs_raw_tokenizer(bench: Bench) -> Iterator[Row]:
    """Yield a row that compares the tokenizers with byte-level BPE.

    The BPE vocabulary is learned first, if there is none yet.
    """
    vocabulary = bench.corpus.bpe_vocabulary
    if not vocabulary.exists():
        say("learning byte-level BPE from the text that is in no shard …")
        found = train_bpe(bench.corpus.held_out.read_text().split("\n"), size=_BPE_SIZE)
        vocabulary.write_bytes(found.model or b"")
    yield _tokenizers("bpe_vs_raw_tokenizer", bench, vocabulary)


def _tokenizers(name: str, bench: Bench, vocabulary: Path | None) -> Row:
    size = bench.sizes.near
    usage, ours = bench.tokenizer("our_tokenizer", size, vocabulary)
    peer, raw = bench.tokenizer("raw_tokenizer", size, vocabulary)
    value, other = ours["tokens"] / ours["seconds"], raw["tokens"] / raw["seconds"]
    return Row(
        name,
        value,
        "tokens/s",
        _RAW,
        value / other,
        raw["cpu_seconds"] / ours["cpu_seconds"],
        (ours["tokens"] / usage.best_s) / (raw["tokens"] / peer.best_s),
        _spread(usage, peer),
        peak_rss_mb=usage.peak_rss_mb,
        details={
            "input_mb": bench.megabytes(size),
            "tokens": ours["tokens"],
            "wall_s": ours["seconds"],
            "cpu_s": ours["cpu_seconds"],
            "texts": ours["texts"],
            "peer_value": other,
            "peer_tokens": raw["tokens"],
            "peer_texts": raw["texts"],
        },
    )


def two_cores_vs_one(bench: Bench) -> Iterator[Row]:
    """Yield a row of the speed without start-up, from the times of a large and a small input."""
    small, large = bench.sizes.steady
    shards = bench.corpus.take(small)
    if processes_for([str(path) for path in shards], [p.stat().st_size for p in shards], 2) != 2:
        raise CorpusTooSmallError(f"the job starts no worker processes for {small} MB")
    megabytes = bench.megabytes(large) - bench.megabytes(small)
    more: dict[str, Any] = {"input_mb": bench.megabytes(large)}
    speeds, peak, used = [], 0.0, list[Usage]()
    for workers, word in ((1, "one"), (2, "two")):
        first = bench.ours(small, "doc_sentences", workers=workers)
        second = bench.ours(large, "doc_sentences", workers=workers)
        used += [first.usage, second.usage]
        steady = second.usage.wall_s - first.usage.wall_s
        speeds.append(megabytes / steady)
        start_up = first.usage.wall_s - bench.megabytes(small) / speeds[-1]
        more |= {
            f"{word}_mb_per_s": speeds[-1],
            f"{word}_start_up_s": start_up,
            f"{word}_wall_s": second.usage.wall_s,
            f"{word}_cpu_s": second.usage.cpu_s,
            f"{word}_peak_rss_mb": second.usage.peak_rss_mb,
        }
        peak = second.usage.peak_rss_mb
    ratio = speeds[1] / speeds[0]
    yield Row(
        "two_cores_vs_one",
        speeds[1],
        "MB/s",
        "ours on one core",
        ratio,
        spread=_spread(*used),
        peak_rss_mb=peak,
        details=more,
    )


def peak_memory(bench: Bench) -> Iterator[Row]:
    """Yield rows that compare the peak memory of a large input with that of a small one."""
    small, large = bench.sizes.memory
    for packing in ("doc_sentences", "segment_pair"):
        low = bench.ours(small, packing).usage.peak_rss_mb
        high = bench.ours(large, packing).usage.peak_rss_mb
        suffix = "" if packing == "doc_sentences" else f"_{packing}"
        yield Row(
            f"peak_memory_{large}mb_vs_{small}mb{suffix}",
            high,
            "MB",
            f"ours on {small} MB",
            high / low,
            peak_rss_mb=high,
            details={"input_mb": bench.megabytes(large), "peer_value": low},
        )


def row_fill(bench: Bench) -> Iterator[Row]:
    """Yield rows of the share of the positions in the training rows that hold tokens."""
    for packing in PACKINGS:
        ours = bench.ours(bench.sizes.fill, packing, extra=512)
        for length in (128, 512):
            yield Row(
                f"row_fill_{packing}_{length}",
                ours.row_fill(length),
                "share",
                peak_rss_mb=ours.usage.peak_rss_mb,
                details={"input_mb": bench.megabytes(bench.sizes.fill)},
            )


def near_duplicates(bench: Bench) -> Iterator[Row]:
    """Yield a row that compares looking for similar documents with only exact copies."""
    size = bench.sizes.near
    near, exact = bench.ours(size, "doc_sentences", "near"), bench.ours(size, "doc_sentences")
    value, other = (bench.megabytes(size) / run.usage.wall_s for run in (near, exact))
    yield Row(
        "near_duplicates_vs_exact",
        value,
        "MB/s",
        "ours, exact duplicates only",
        value / other,
        exact.usage.cpu_s / near.usage.cpu_s,
        exact.usage.best_s / near.usage.best_s,
        _spread(near.usage, exact.usage),
        peak_rss_mb=near.usage.peak_rss_mb,
        details={
            "input_mb": bench.megabytes(size),
            "wall_s": near.usage.wall_s,
            "cpu_s": near.usage.cpu_s,
            "dropped": near.manifest.dropped,
            "peer_value": other,
        },
    )


GROUPS: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "ours_nsp_vs_tf_models": nsp_vs_tf_models,
    "ours_nsp_vs_hf_collator": nsp_vs_hf_collator,
    "ours_packed_vs_raw_tokenizer": packed_vs_raw_tokenizer,
    "tokenizer_vs_raw_tokenizer": tokenizer_vs_raw_tokenizer,
    "bpe_vs_raw_tokenizer": bpe_vs_raw_tokenizer,
    "two_cores_vs_one": two_cores_vs_one,
    "peak_memory": peak_memory,
    "row_fill": row_fill,
    "near_duplicates_vs_exact": near_duplicates,
}
