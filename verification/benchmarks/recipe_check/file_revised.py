"""Checks that the same files stay held out when revised files come again the next day."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pipeline_store.formats import PartitionManifest, ShardManifest, Split
from pipeline_store.layout import StoreLayout
from verification.benchmarks.recipe_check.finding import Figures, Finding
from verification.benchmarks.recipe_check.pages import (
    PARTITION,
    new_store,
    pages,
    prepare,
    put_files,
)

NAME = "file-revised"
_NEXT = "2026-01-02"
_SETTINGS = {"corpus.document": "file"}
_Sides = dict[str, Split]
"""The side of each file, by its name."""


def check(state_dir: Path) -> Finding:
    """Prepare pages on two days; on the second, each page has one more word. A page is a file.

    For ``before``, the second day is prepared in a store that knows nothing of the first, so that
    every page is drawn again. Today it follows the first day in the same lineage.

    :param state_dir: parent folder of the stores, which are written again.
    """
    root = state_dir / NAME
    first, second = pages(), {name: _revised(text) for name, text in pages().items()}
    store = new_store(root / "lineage", _files(first))
    yesterday = sides(store, PARTITION)
    put_files(store, _NEXT, _files(second))
    drawn = sides(new_store(root / "alone", _files(second)), PARTITION)
    before, after = _compared(yesterday, drawn), _compared(yesterday, sides(store, _NEXT))
    return Finding(
        NAME,
        before=before,
        after=after,
        holds=before["held_out_then_trained_on"] > 0
        and after["held_out_then_trained_on"] == after["trained_on_then_held_out"] == 0
        and after["dropped"] == 0
        and after["held_out"] > 0,
    )


def _files(named: Mapping[str, str]) -> dict[str, str]:
    return {f"{name}.txt": text for name, text in named.items()}


def _revised(text: str) -> str:
    return text.replace(" ", " revised ", 1)


def sides(store: StoreLayout, partition: str) -> _Sides:
    """Prepare a partition; return the side of each file that has records."""
    manifest: PartitionManifest = prepare(store, _SETTINGS, partition)
    return {
        shard.input_uri.rpartition("/")[2]: file.split
        for shard in map(ShardManifest.load, manifest.shards)
        for file in shard.files
        if file.records
    }


def _compared(first: _Sides, second: _Sides) -> Figures:
    """Return the number of files, and how many changed sides from one day to the next."""
    held_out = {name for name, side in first.items() if side is Split.VALIDATION}
    then = {name for name, side in second.items() if side is Split.VALIDATION}
    return {
        "files": len(first),
        "held_out": len(held_out),
        "held_out_then_trained_on": len((held_out & second.keys()) - then),
        "trained_on_then_held_out": len(then - held_out),
        "dropped": len(first) - len(second),
    }
