"""The report on a partition's data: right numbers, and a page that stands alone."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from beam_jobs import report
from beam_jobs.reports.content import MEANINGS, ReportContent
from corpus.text.drops import DropReason
from pipeline_store import uris
from pipeline_store.formats import DuplicateIndex, ShardManifest, Split
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.manifests import (
    PARTITION,
    digest,
    record_file,
    shard,
    statistics,
    store_partition,
)

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """Text, ids and everything that could lead elsewhere; checks that elements are closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.ids: list[str] = []
        self.leads: list[str] = []
        self.tags: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self._open.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"href", "src", "xlink:href", "action"}:
                self.leads.append(value or "")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    return StoreLayout(str(tmp_path / "store"))


def page(store: StoreLayout, shards: list[ShardManifest], **changes: Any) -> tuple[Page, str]:
    manifest, uri = store_partition(store, shards, **changes)
    written = report.write_report(manifest, uri, store, store.lineage("default"))
    assert written == uri.removesuffix(".json") + ".html"
    html = uris.read(written).decode()
    return Page(html), html


def assert_stands_alone(found: Page, html: str) -> None:
    assert all(lead.startswith("#") for lead in found.leads)
    assert {lead.removeprefix("#") for lead in found.leads} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    assert "script" not in found.tags
    assert "@import" not in html
    # url() may only name something on the page itself, as clip paths do.
    assert re.findall(r"url\((?!#)[^)]*\)", html) == []


def test_every_reason_to_drop_a_document_has_a_meaning() -> None:
    assert set(MEANINGS) == set(DropReason)


def test_what_rows_waste_and_what_is_held_out_is_on_the_page(store: StoreLayout) -> None:
    padded = {Split.TRAIN: 100 * 128, Split.VALIDATION: 0}
    found, html = page(store, [shard(1)], tokens=padded, split_by="file")
    assert_stands_alone(found, html)
    assert "Row fill 0.50: of rows of 128 tokens 50% is padding" in found.words
    assert "Split by file ( corpus.split_by )" in found.words
    assert '<p class="bad">' in html


def test_numbers_of_a_partition(store: StoreLayout) -> None:
    bad = shard(
        2,
        documents=100,
        dropped={"invalid_utf8": 3, "duplicate": 20, "near_duplicate": 5},
        dead_letter=digest("dead_letter.jsonl"),
    )
    snapshot = ["2026-01-29/aaaa", "2026-01-30/bbbb"]
    index = DuplicateIndex(data=digest("d.npz"), snapshot_sha256="2" * 64, snapshot=snapshot)
    found, html = page(store, [shard(1), bad], duplicate_index=index)
    assert_stands_alone(found, html)
    words = found.words
    assert f"Data of partition {PARTITION}" in words
    assert "172 documents used of 200" in words
    assert "train 128 180 360 41,472 90.0% 10.0% 15.0%" in words
    assert "validation 128 20 40 4,608 90.0% 10.0% 15.0%" in words
    assert "25 duplicates left out" in words
    assert "masked; 15.0% configured" in words
    assert "1.00% unknown tokens" in words
    assert "invalid_utf8 A byte is not UTF-8; often the file has another encoding. 3 1.50%" in words
    assert "20 documents equal to an earlier one, 5 similar to one" in words
    assert "Earlier partitions compared with: 2" in words
    assert "2026-01-29/aaaa" in words
    assert "tensorflow 600" in words
    assert f"{store.shard(bad.shard_key)}/dead_letter.jsonl" in words
    assert "tokenizers 0.23.3" in words
    assert "masking.dupe_factor 1" in words
    assert "masking.dynamic yes" in words
    # The worst file comes first.
    assert words.index("part-00002.txt") < words.index("part-00001.txt")


def test_two_lengths_and_rows_that_the_trainer_masks(store: StoreLayout) -> None:
    files = [
        record_file(Split.TRAIN, 512, 50, masked=False, masked_tokens=0),
        record_file(Split.TRAIN, 128, 180, masked=False, masked_tokens=0),
        record_file(Split.VALIDATION, 512, 4),
        record_file(Split.VALIDATION, 128, 20),
    ]
    found, html = page(store, [shard(1, files=files)])
    assert_stands_alone(found, html)
    words = found.words
    lines = ["train 128 90 180", "validation 128 10 20", "train 512 25 50", "validation 512 2 4"]
    assert [words.index(line) for line in lines] == sorted(words.index(line) for line in lines)
    assert "by the trainer" in words
    assert "the trainer draws new ones in each epoch" in words
    # The rate is that of the rows which carry masks.
    assert "15.0% masked; 15.0% configured" in words


def test_a_partition_with_hardly_anything_in_it(store: StoreLayout) -> None:
    empty = shard(
        1,
        documents=1,
        files=[record_file(Split.TRAIN, 128, 1)],
        statistics=statistics(0, document_tokens={0: 1}, row_tokens={0: 1}, new_words={}),
    )
    found, html = page(store, [empty], settings={}, duplicate_index=None)
    assert_stands_alone(found, html)
    words = found.words
    assert "No validation row" in words
    assert "None: all 1 documents are in the records." in words
    assert "Not looked for across partitions" in words
    assert "- unknown tokens" in words
    assert "configured" not in words


def test_a_partition_of_nothing(store: StoreLayout) -> None:
    nothing = statistics(0, document_tokens={}, row_tokens={}, new_words={})
    found, html = page(
        store, [shard(1, documents=0, files=[], statistics=nothing)], dropped={"from_the_future": 0}
    )
    assert_stands_alone(found, html)
    assert "No document was used." in found.words
    assert "from_the_future" not in found.words


def test_a_reason_from_a_later_program_is_shown(store: StoreLayout) -> None:
    found, _ = page(store, [shard(1, dropped={"from_the_future": 2})])
    assert "from_the_future 2 2.00%" in found.words


def test_text_of_others_cannot_become_html(store: StoreLayout) -> None:
    evil = '<script>alert("x")</script>'
    odd = shard(
        1,
        input_uri=f"/data/{evil}.txt",
        dropped={evil: 1},
        statistics=statistics(100, new_words={evil: 7, "%s {{ 7*7 }}": 6}),
        libraries={evil: evil},
    )
    found, html = page(store, [odd], settings={"corpus": {"text_field": evil}})
    assert_stands_alone(found, html)
    assert evil in found.words
    assert "%s {{ 7*7 }}" in found.words


def test_a_thousand_shards_make_a_small_page(store: StoreLayout) -> None:
    shards = [
        shard(
            number,
            dropped={"invalid_utf8": number % 7},
            dead_letter=digest("dead_letter.jsonl"),
            statistics=statistics(
                100, new_words={f"word{n}": 9 for n in range(number, number + 60)}
            ),
        )
        for number in range(1000)
    ]
    snapshot = [f"day-{number:05d}/{'0' * 16}" for number in range(2000)]
    index = DuplicateIndex(data=digest("d.npz"), snapshot_sha256="2" * 64, snapshot=snapshot)
    found, html = page(store, shards, duplicate_index=index)
    assert_stands_alone(found, html)
    assert len(html) < 150_000
    assert "The worst 25 of 1,000" in found.words
    assert "1,800 older ones" in found.words
    assert found.words.count("dead_letter.jsonl") == 25


def test_same_manifest_gives_the_same_page(store: StoreLayout) -> None:
    manifest, uri = store_partition(store, [shard(1), shard(2)])
    assert report.render(manifest, uri, store) == report.render(manifest, uri, store)


def test_shard_uris_may_be_relative_to_the_store(store: StoreLayout) -> None:
    item = shard(1)
    manifest, uri = store_partition(store, [item])
    relative = manifest.model_copy(update={"shards": [f"shards/{item.shard_key}/shard.json"]})
    assert report.render(relative, uri, store) == report.render(manifest, uri, store)


@pytest.mark.parametrize(
    ("share", "shown"),
    [
        (None, "-"),
        (0.0, "0.0%"),
        (0.00001, "<0.01%"),
        (0.0123, "1.23%"),
        (0.1, "10.0%"),
        (0.9997, "99.97%"),
        (1.0, "100.0%"),
    ],
)
def test_shares_for_people(share: float | None, shown: str) -> None:
    assert report._percent(share) == shown


@pytest.mark.parametrize(
    ("counts", "median"),
    [({}, None), ({0: 1}, "1"), ({3: 2, 4: 1}, "8-15"), ({3: 1, 4: 1, 5: 1}, "16-31")],
)
def test_median_length(counts: dict[int, int], median: str | None, store: StoreLayout) -> None:
    manifest, uri = store_partition(
        store, [shard(1)], statistics=statistics(100, document_tokens=counts)
    )
    content = ReportContent(manifest, "id", uri, [])
    assert content.median_length == median
    assert sum(bar.count for bar in content.document_lengths) == sum(counts.values())


def test_command_line(
    store: StoreLayout, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    manifest, uri = store_partition(store, [shard(1)])
    arguments = ["--store", store.root, "--manifest", uri]
    beside = subprocess.run(
        [sys.executable, "-m", "beam_jobs.report", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert beside.returncode == 0, beside.stderr
    assert json.loads(beside.stdout)["report"] == uri.removesuffix(".json") + ".html"
    output = tmp_path / "page.html"
    assert report.main([*arguments, "--output", str(output)]) == 0
    assert json.loads(capsys.readouterr().out)["report"] == str(output)
    assert output.read_bytes() == uris.read(uri.removesuffix(".json") + ".html")

    assert report.main(["--store", store.root, "--manifest", "/nowhere.json"]) == 40
    assert "/nowhere.json does not exist" in capsys.readouterr().err
    uris.delete(manifest.shards[0])
    assert report.main(arguments) == 40
    assert "named by the partition's manifest, but gone" in capsys.readouterr().err


def test_no_engine_is_loaded_for_a_page() -> None:
    code = "import sys, beam_jobs.report; print([m for m in ('apache_beam', 'tensorflow', "
    code += "'matplotlib.pyplot', 'airflow') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
