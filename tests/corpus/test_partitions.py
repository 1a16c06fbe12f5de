"""Partitions are found from the input pattern."""

from __future__ import annotations

import pytest

from corpus.partitions import find_partitions
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

FILES = (
    "corpus/2026-01-01/a.txt",
    "corpus/2026-01-02/a.txt",
    "corpus/2026-01-02/deep/b.txt",
    "corpus/2026-01-03/.hidden",
    "corpus/Not An Id/a.txt",
    "corpus/readme.txt",
    "flat/part-2026-02-01.jsonl",
    "flat/part-2026-02-02.jsonl.gz",
    "both/x/x.txt",
    "both/x/y.txt",
)


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("corpus/{partition}/*", ["2026-01-01", "2026-01-02"]),
        ("corpus/{partition}/*/*.txt", ["2026-01-02"]),
        ("corpus/{partition}/b*", []),
        ("corpus/{partition}/[ab].txt", ["2026-01-01", "2026-01-02"]),
        ("corpus/{partition}/[!a].txt", []),
        ("corpus/{partition}/?.txt", ["2026-01-01", "2026-01-02"]),
        ("flat/part-{partition}.jsonl", ["2026-02-01"]),
        (
            "flat/part-{partition}.jsonl, corpus/{partition}/*",
            ["2026-01-01", "2026-01-02", "2026-02-01"],
        ),
        ("both/{partition}/{partition}.txt", ["x"]),
        ("corpus/*", []),
        ("absent/{partition}/*", []),
    ],
)
def test_partitions_with_files_are_found(any_store: str, pattern: str, wanted: list[str]) -> None:
    for name in FILES:
        uris.write(uris.join(any_store, name), b"text")
    assert find_partitions(pattern, StoreLayout(any_store)) == wanted
    absolute = ",".join(uris.join(any_store, part.strip()) for part in pattern.split(","))
    assert find_partitions(absolute, StoreLayout("/elsewhere")) == wanted
