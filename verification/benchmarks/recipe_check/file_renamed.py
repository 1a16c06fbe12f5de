"""Checks that the same text stays held out when files are renamed and prepared again."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from corpus.duplicates.signatures import IndexedDocuments
from corpus.text.text_documents import text_documents
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from verification.benchmarks.recipe_check.finding import Figures, Finding
from verification.benchmarks.recipe_check.pages import PARTITION, new_store, pages, prepare

NAME = "file-renamed"
_Sides = dict[bytes, bool]
"""Whether a document is held out, by the hash of its content."""


def check(state_dir: Path) -> Finding:
    """Prepare the same pages twice; the second time every second page has another name.

    The second time is in a store that knows nothing of the first. Today a file's side depends on
    its content. ``before`` shows the effect of splitting by name: each paragraph is a record that
    names its file, and ``corpus.group_field`` splits by that name.

    :param state_dir: parent folder of the store, which is written again.
    """
    root = state_dir / NAME
    first = pages()
    second = {
        f"renamed-{name}" if number % 2 else name: text
        for number, (name, text) in enumerate(first.items())
    }
    by_name, by_content = (
        _compared(*(sides(new_store(root, files(named)), settings) for named in (first, second)))
        for files, settings in ((_records, {"corpus.group_field": "file"}), (_text_files, {}))
    )
    return Finding(
        NAME,
        before=by_name,
        after=by_content,
        holds=by_name["changed_sides"] > 0
        and by_content["changed_sides"] == 0
        and by_content["held_out"] > 0,
    )


def _text_files(named: Mapping[str, str]) -> dict[str, str]:
    return {f"{name}.txt": text for name, text in named.items()}


def _records(named: Mapping[str, str]) -> dict[str, str]:
    """Return one file of records, in the order of the pages: a paragraph and its file's name."""
    lines = [
        json.dumps({"file": name, "text": paragraph}) + "\n"
        for name, text in named.items()
        for paragraph in text_documents(io.BytesIO(text.encode()))
        if isinstance(paragraph, str)
    ]
    return {"records.jsonl": "".join(lines)}


def sides(store: StoreLayout, settings: Mapping[str, Any]) -> _Sides:
    """Prepare the partition; return the sides of the documents that it owns."""
    manifest = prepare(store, settings)
    folder = store.lineage(manifest.lineage_id).manifests(PARTITION)
    assert manifest.duplicate_index is not None  # noqa: S101 - the default looks for copies
    digest = manifest.duplicate_index.data
    found = IndexedDocuments.load(uris.join(folder, digest.path), digest)
    return {
        row.tobytes(): bool(side) for row, side in zip(found.hashes, found.held_out, strict=True)
    }


def _compared(first: _Sides, second: _Sides) -> Figures:
    """Return the numbers of documents, of held-out ones, and of those that changed sides."""
    changed = sum(second.get(document) is not side for document, side in first.items())
    return {
        "documents": len(first),
        "held_out": sum(first.values()),
        "changed_sides": changed,
    }
