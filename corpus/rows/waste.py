"""Warns of what a partition's rows waste: TPU time on padding, and weight on one document."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_store.formats import PartitionManifest

LEAST_FILL = 0.8
MOST_OF_ONE = 0.2


def warnings(manifest: PartitionManifest) -> list[str]:
    """Return a line for each way in which a partition's rows cost more than they teach."""
    main, extra = manifest.max_seq_length, manifest.extra_max_seq_length
    rows, tokens = sum(manifest.records.values()), sum(manifest.tokens.values())
    found = [*_padding(manifest, main, rows, tokens)]
    if extra is not None:
        rows, tokens = sum(manifest.extra_records.values()), sum(manifest.extra_tokens.values())
        found += _padding(manifest, extra, rows, tokens)
    return [*found, *_large_document(manifest)]


def _padding(manifest: PartitionManifest, length: int, rows: int, tokens: int) -> Iterator[str]:
    """Yield a line if too much of the rows of a length is padding."""
    if not tokens or tokens >= LEAST_FILL * rows * length:
        return
    fill = tokens / (rows * length)
    documents = sum(manifest.statistics.document_tokens.values())
    mean = manifest.statistics.text_tokens / max(1, documents)
    yield (
        f"row fill {fill:.2f}: of rows of {length} tokens {1 - fill:.0%} is padding, which takes "
        f"as much TPU time as text, so the same text takes {1 / fill:.1f} times that of full rows, "
        f"and a model learns less in as many steps. Its {documents:,} documents have {mean:.0f} "
        f"tokens on average. Set {', or '.join(_remedies(manifest, length))}; see "
        "docs/operate/data-report.md."
    )


def _remedies(manifest: PartitionManifest, length: int) -> Iterator[str]:
    corpus = manifest.settings.get("corpus", {})
    is_main = length == manifest.max_seq_length
    if corpus.get("input_format", "auto") in ("auto", "text") and "document" not in corpus:
        yield (
            "corpus.document=file where each text file is one text (for a new model.lineage_id, as "
            "it is frozen)"
        )
    if manifest.packing == "doc_sentences":
        yield "masking.packing=full_sentences, which joins documents in training rows"
    yield f"a smaller masking.{'' if is_main else 'extra_'}max_seq_length"


def _large_document(manifest: PartitionManifest) -> Iterator[str]:
    """Yield a line if one document is too much of the text."""
    longest, tokens = manifest.statistics.longest_document, manifest.statistics.text_tokens
    if longest > MOST_OF_ONE * tokens:
        yield (
            f"one document holds {longest / tokens:.0%} of the tokens ({longest:,} of {tokens:,}), "
            "and is trained on or held out as a whole: a model learns or is judged by little else. "
            "If it is many texts, put blank lines between them with corpus.document=blank_line, or "
            "set corpus.document=line; else cut the file, or leave it out."
        )
