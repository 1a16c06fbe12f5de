"""New and changed partitions are noticed, once, when they are complete."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from corpus.arrivals import CorpusArrivals, Look
from corpus.errors import UserError
from corpus.partitions import find_partitions
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

PATTERN = "corpus/{partition}/*"
SETTLE = timedelta(minutes=5)
START = datetime(2026, 3, 1, tzinfo=UTC)


class Corpus:
    """A corpus and who watches it; a look comes ten minutes after the one before."""

    def __init__(self, root: str, pattern: str = PATTERN) -> None:
        self.root = root
        self.arrivals = CorpusArrivals(StoreLayout(root), pattern)
        self.now = START

    def write(self, *names: str, text: bytes = b"text") -> None:
        for name in names:
            uris.write(uris.join(self.root, name), text)

    def look(self, after: timedelta = 2 * SETTLE) -> Look:
        self.now += after
        return self.arrivals.look(self.now, SETTLE)

    def start(self, partition: str) -> str:
        """Do what the DAG does that hears of a partition; return the run's id."""
        listing = self.arrivals.listing(partition)
        self.arrivals.see(listing, self.now)
        self.arrivals.started(partition, listing.run_id)
        return listing.run_id


@pytest.fixture
def corpus(any_store: str) -> Corpus:
    """Return a corpus that has been looked at while it had one partition."""
    corpus = Corpus(any_store)
    corpus.write("corpus/2026-01-01/a.txt")
    corpus.look()
    return corpus


def test_what_was_there_before_the_first_look_is_not_announced(any_store: str) -> None:
    corpus = Corpus(any_store)
    corpus.write("corpus/2026-01-01/a.txt", "corpus/2026-01-02/a.txt")
    first = corpus.look()
    assert (first.first, first.partitions, first.arrived) == (True, 2, [])
    assert "2 partition(s) are there already" in first.summary
    for _ in range(2):
        again = corpus.look()
        assert (again.first, again.arrived, again.waiting) == (False, [], {})


def test_a_partition_is_announced_when_two_looks_saw_the_same(corpus: Corpus) -> None:
    corpus.write("corpus/2026-01-02/a.txt")
    look = corpus.look()
    assert look.arrived == []
    assert list(look.waiting) == ["2026-01-02"]
    corpus.write("corpus/2026-01-02/b.txt")
    assert corpus.look().arrived == []
    corpus.write("corpus/2026-01-02/b.txt", text=b"longer")
    assert corpus.look().arrived == []
    assert corpus.look().arrived == ["2026-01-02"]


def test_two_looks_soon_after_each_other_settle_nothing(corpus: Corpus) -> None:
    corpus.write("corpus/2026-01-02/a.txt")
    corpus.look()
    assert corpus.look(after=SETTLE / 2).arrived == []
    assert corpus.look(after=timedelta(0)).arrived == []
    assert corpus.look(after=SETTLE / 2).arrived == ["2026-01-02"]


@pytest.mark.parametrize("marker", ["_READY", "_SUCCESS"])
def test_a_marked_partition_is_announced_at_once(corpus: Corpus, marker: str) -> None:
    corpus.write("corpus/2026-01-02/a.txt", f"corpus/2026-01-02/{marker}", "corpus/x/_OTHER")
    look = corpus.look()
    assert look.arrived == ["2026-01-02"]
    assert list(look.waiting) == ["x"]


def test_an_announcement_is_repeated_until_a_run_has_been_started(corpus: Corpus) -> None:
    corpus.write("corpus/2026-01-02/a.txt", "corpus/2026-01-02/_READY")
    # Airflow forgets an event for a DAG that is paused.
    assert corpus.look().arrived == ["2026-01-02"]
    assert corpus.look().arrived == ["2026-01-02"]
    run_id = corpus.start("2026-01-02")
    assert run_id.startswith("arrival__2026-01-02__")
    assert corpus.look().arrived == []
    assert corpus.start("2026-01-02") == run_id


def test_a_changed_partition_is_another_run(corpus: Corpus) -> None:
    known = corpus.start("2026-01-01")
    corpus.write("corpus/2026-01-01/b.txt")
    assert corpus.look().arrived == []
    assert corpus.look().arrived == ["2026-01-01"]
    second = corpus.start("2026-01-01")
    assert second != known
    assert corpus.look().arrived == []
    # A file of which more was written later.
    corpus.write("corpus/2026-01-01/b.txt", text=b"text and more")
    corpus.look()
    assert corpus.look().arrived == ["2026-01-01"]
    assert corpus.start("2026-01-01") not in {known, second}


def test_a_partition_that_was_there_at_the_first_look_is_announced_when_it_changes(
    corpus: Corpus,
) -> None:
    corpus.write("corpus/2026-01-01/b.txt", "corpus/2026-01-01/_READY")
    assert corpus.look().arrived == ["2026-01-01"]


def test_markers_and_hidden_files_are_no_shards(corpus: Corpus) -> None:
    before = corpus.arrivals.listing("2026-01-01")
    corpus.write(
        "corpus/2026-01-01/_SUCCESS", "corpus/2026-01-01/.part", "corpus/2026-01-02/_READY"
    )
    assert corpus.arrivals.listing("2026-01-01") == before
    assert find_partitions(PATTERN, StoreLayout(corpus.root)) == ["2026-01-01"]
    look = corpus.look()
    assert (look.arrived, look.waiting) == ([], {})


def test_a_set_with_holes_waits_for_the_missing_file(corpus: Corpus) -> None:
    corpus.write("corpus/2026-01-02/part-00000-of-00002.txt")
    corpus.look()
    look = corpus.look()
    assert look.arrived == []
    assert "part-00001-of-00002.txt" in look.waiting["2026-01-02"]
    # Whoever says that it is complete gets a run, whose first task names the missing file.
    corpus.write("corpus/2026-01-02/_READY")
    assert corpus.look().arrived == ["2026-01-02"]


def test_with_several_patterns_each_must_have_files_and_its_own_marker(any_store: str) -> None:
    corpus = Corpus(any_store, "web/{partition}/*/*.txt, books/{partition}.txt, common/*")
    corpus.look()
    corpus.write("web/d1/en/a.txt", "web/d1/_READY", "common/c.txt")
    look = corpus.look()
    assert "books/{partition}.txt" in look.waiting["d1"]
    with pytest.raises(UserError, match=r"partition d1 matches .*books/d1\.txt"):
        corpus.arrivals.listing("d1")
    corpus.write("books/d1.txt", "books/_READY")
    # The folder of the books is everybody's: a marker in it speaks of none.
    assert corpus.look().arrived == []
    assert corpus.look().arrived == ["d1"]


def test_every_folder_of_a_partition_needs_a_marker(any_store: str) -> None:
    corpus = Corpus(any_store, "corpus/*/{partition}/*.txt")
    corpus.look()
    corpus.write("corpus/en/d1/a.txt", "corpus/en/d1/_READY", "corpus/de/d1/a.txt")
    assert corpus.look().arrived == []
    corpus.write("corpus/de/d1/_READY")
    assert corpus.look(after=timedelta(seconds=1)).arrived == ["d1"]


def test_another_pattern_is_another_corpus(corpus: Corpus) -> None:
    corpus.write("corpus/2026-01-02/a.txt", "corpus/2026-01-02/_READY")
    other = Corpus(corpus.root, "corpus/{partition}/*.txt")
    assert other.look().first
    assert other.look().arrived == []
    assert corpus.look().arrived == ["2026-01-02"]


def test_a_store_that_was_copied_elsewhere_is_known(tmp_path: Path) -> None:
    corpus = Corpus(str(tmp_path / "here"))
    corpus.look()
    corpus.write("corpus/2026-01-02/a.txt", "corpus/2026-01-02/_READY")
    run_id = corpus.start("2026-01-02")
    shutil.copytree(tmp_path / "here", tmp_path / "there")
    moved = Corpus(f"file://{tmp_path}/there/")
    assert moved.arrivals.listing("2026-01-02").run_id == run_id
    assert moved.look().arrived == []


def test_a_marker_is_found_by_file_uri_too(tmp_path: Path) -> None:
    corpus = Corpus(f"file://{tmp_path}")
    corpus.look()
    corpus.write("corpus/2026-01-02/a.txt", "corpus/2026-01-02/_READY")
    assert corpus.look().arrived == ["2026-01-02"]


def test_a_corpus_without_partitions_cannot_be_watched(any_store: str) -> None:
    with pytest.raises(UserError, match=r"corpus\.input_pattern: 'corpus/\*' has no {partition}"):
        Corpus(any_store, "corpus/*")


def test_an_announced_partition_without_files_is_named(corpus: Corpus) -> None:
    with pytest.raises(UserError, match=r"no file of partition 2031-01-01 matches .*/2031-01-01/"):
        corpus.arrivals.listing("2031-01-01")


def test_nothing_is_started_for_what_was_never_seen(corpus: Corpus) -> None:
    with pytest.raises(FileNotFoundError):
        corpus.arrivals.started("2026-01-01", "arrival__2026-01-01__x")


def test_of_two_who_write_at_once_the_second_notices(
    corpus: Corpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = corpus.start("2026-01-01")
    corpus.write("corpus/2026-01-01/b.txt")
    changed = corpus.arrivals.listing("2026-01-01")
    read = uris.read_versioned
    others = iter([lambda: corpus.arrivals.see(changed, corpus.now)])

    def read_slowly(uri: str) -> tuple[bytes, str] | None:
        found = read(uri)
        for other in others:
            other()
        return found

    with monkeypatch.context() as patched:
        patched.setattr(uris, "read_versioned", read_slowly)
        with pytest.raises(uris.VersionConflictError):
            corpus.arrivals.started("2026-01-01", changed.run_id)
    # What the first wrote is still there.
    assert corpus.arrivals.see(changed, corpus.now).run_id == run_id
