"""Checks pages whose paragraphs are documents: padding, and held-out text of known files."""

from __future__ import annotations

from pathlib import Path

from corpus.rows import waste
from pipeline_store.formats import PartitionManifest, ShardManifest, Split
from verification.benchmarks.recipe_check.finding import Figures, Finding
from verification.benchmarks.recipe_check.pages import new_store, pages, prepare

NAME = "paragraphs"
# What a document was, and what was held out as a whole, before either could be set.
_EARLIER = {"corpus.document": "blank_line", "corpus.split_by": "document"}
_MOST_SHARED = 0.9


def check(state_dir: Path) -> Finding:
    """Prepare the same pages in three ways.

    Before, a paragraph was a document, and was trained on or held out independently. With today's
    defaults it still is a document, but is on the side of its file, and the log warns about the
    padding; ``corpus.document=file``, which the warning names, avoids it.

    :param state_dir: parent folder of the stores, which are written again.
    """
    files = {f"{name}.txt": text for name, text in pages().items()}
    before, defaults, whole = (
        _figures(prepare(new_store(state_dir / NAME / how, files), settings))
        for how, settings in (
            ("earlier", _EARLIER),
            ("defaults", {}),
            ("file", {"corpus.document": "file"}),
        )
    )
    return Finding(
        NAME,
        before=before,
        after={"defaults": defaults, "corpus.document=file": whole},
        holds=before["row_fill"] < waste.LEAST_FILL <= whole["row_fill"]
        and before["held_out_beside_training"] > _MOST_SHARED
        and defaults["held_out_beside_training"] == whole["held_out_beside_training"] == 0
        and defaults["warnings"] > 0 == whole["warnings"],
    )


def _figures(manifest: PartitionManifest) -> Figures:
    """Return how full rows are, and the share of held-out documents from files trained on."""
    rows, tokens = sum(manifest.records.values()), sum(manifest.tokens.values())
    held_out = beside = 0
    # A shard is a file.
    for shard in map(ShardManifest.load, manifest.shards):
        mine = _documents(shard, Split.VALIDATION, manifest.max_seq_length)
        held_out += mine
        beside += mine if _documents(shard, Split.TRAIN, manifest.max_seq_length) else 0
    if not held_out:
        raise ValueError(
            f"none of {manifest.documents} documents is held out, so there is nothing to look at; "
            "corpus.validation_fraction is too small for so few."
        )
    return {
        "documents": manifest.documents,
        "rows": rows,
        "row_fill": round(tokens / (rows * manifest.max_seq_length), 3),
        "held_out_beside_training": round(beside / held_out, 3),
        "warnings": len(waste.warnings(manifest)),
    }


def _documents(shard: ShardManifest, split: Split, length: int) -> int:
    file = shard.file(split, length)
    return 0 if file is None else file.documents
