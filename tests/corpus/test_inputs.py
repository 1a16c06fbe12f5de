from __future__ import annotations

from pathlib import Path

import pytest

from corpus.errors import UserError
from corpus.text.inputs import input_format, list_inputs
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.workspace import make_config


@pytest.fixture
def store(tmp_path: Path) -> StoreLayout:
    for name in ("day1/a.txt", "day1/b.txt", "day1/c.jsonl", "day2/a.txt"):
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    return StoreLayout(str(tmp_path))


def names(pattern: str, store: StoreLayout, partition: str = "day1") -> list[str]:
    root = f"{store.root}/corpus/"
    return [uri.removeprefix(root) for uri in list_inputs(pattern, partition, store)]


def refusal(pattern: str, store: StoreLayout) -> str:
    with pytest.raises(UserError) as caught:
        list_inputs(pattern, "day1", store)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_patterns_are_below_the_store_and_know_the_partition(store: StoreLayout) -> None:
    assert names("corpus/{partition}/*", store) == ["day1/a.txt", "day1/b.txt", "day1/c.jsonl"]
    assert names("corpus/{partition}/*", store, "day2") == ["day2/a.txt"]


def test_patterns_may_be_absolute(store: StoreLayout) -> None:
    assert names(f"{store.root}/corpus/*/a.txt", store) == ["day1/a.txt", "day2/a.txt"]


def test_lists_of_patterns_name_each_file_once(store: StoreLayout) -> None:
    pattern = "corpus/day1/?.txt, corpus/*/a.txt,"
    assert names(pattern, store) == ["day1/a.txt", "day1/b.txt", "day2/a.txt"]


def test_pattern_without_a_match_is_named_with_what_is_there(store: StoreLayout) -> None:
    message = refusal("corpus/{partition}/*, corpus/{partition}/*.csv", store)
    assert f"{store.root}/corpus/day1/*.csv" in message
    assert "3 other files, such as" in message


def test_empty_folder_is_named(store: StoreLayout) -> None:
    (Path(store.root) / "corpus/day3").mkdir()
    assert "corpus/day3 is empty or does not exist" in refusal("corpus/day3/*", store)
    assert "corpus/day4 is empty or does not exist" in refusal("corpus/day4/*", store)


def test_folder_for_a_pattern_is_explained(store: StoreLayout) -> None:
    assert f"write {store.root}/corpus/day1/*" in refusal("corpus/day1", store)


def test_hidden_files_are_not_input(store: StoreLayout) -> None:
    (Path(store.root) / "corpus/day5").mkdir()
    (Path(store.root) / "corpus/day5/.a.txt").write_bytes(b"text")
    assert "corpus/day5 is empty or does not exist" in refusal("corpus/day5/*", store)


@pytest.mark.parametrize("marker", ["_READY", "_SUCCESS"])
def test_marker_files_are_not_input(store: StoreLayout, marker: str) -> None:
    folder = Path(store.root) / "corpus/day6"
    folder.mkdir()
    (folder / marker).write_bytes(b"done by somebody")
    assert "corpus/day6 is empty or does not exist" in refusal("corpus/day6/*", store)
    (folder / "a.txt").write_bytes(b"text")
    assert names("corpus/day6/*", store) == ["day6/a.txt"]


def test_a_file_whose_name_looks_like_a_pattern_is_taken(store: StoreLayout) -> None:
    (Path(store.root) / "corpus/day1/news[1].txt").write_bytes(b"text")
    assert names("corpus/day1/news[1].txt", store) == ["day1/news[1].txt"]


def members(store: StoreLayout, *indices: int) -> None:
    for index in indices:
        (Path(store.root) / f"corpus/day1/data-{index:05d}-of-00005.txt.gz").write_bytes(b"text")


def test_missing_member_of_a_set_is_named(store: StoreLayout) -> None:
    members(store, 0, 1, 3)
    assert refusal("corpus/day1/*", store) == (
        f"corpus.input_pattern: in {store.root}/corpus/day1 2 of 5 files of a set are missing: "
        "data-00002-of-00005.txt.gz, data-00004-of-00005.txt.gz. Add them, or name a pattern "
        "without that set."
    )


def test_complete_sets_and_parts_of_them_are_taken(store: StoreLayout) -> None:
    members(store, 1, 2, 3, 4, 5)
    assert len(names("corpus/day1/data-*", store)) == 5
    assert len(names("corpus/day1/data-0000[12]*", store)) == 2


def test_member_beyond_the_set_fills_no_hole(store: StoreLayout) -> None:
    members(store, 0, 1, 2, 3, 9)
    assert "1 of 5 files of a set are missing: data-00004-of" in refusal("corpus/day1/*", store)


def test_unknown_scheme_is_refused(store: StoreLayout) -> None:
    assert "scheme 's3'" in refusal("s3://bucket/*", store)


def test_no_pattern_is_refused(store: StoreLayout) -> None:
    assert "contains no pattern" in refusal(" , ", store)


@pytest.mark.parametrize(
    ("name", "setting", "expected"),
    [
        ("a.txt", "auto", "text"),
        ("a.gz", "auto", "text"),
        ("a.jsonl", "auto", "jsonl"),
        ("a.jsonl.gz", "auto", "jsonl"),
        ("a.csv", "auto", "csv"),
        ("A.TSV.bz2", "auto", "tsv"),
        ("gs://bucket/a.parquet", "auto", "parquet"),
        ("a.jsonl.zst", "auto", "jsonl"),
        ("a.csv.xz", "auto", "csv"),
        ("a.csv.zip", "auto", "text"),
        ("day.csv/part", "auto", "text"),
        ("a.jsonl", "sentences", "sentences"),
        ("a.txt", "jsonl", "jsonl"),
    ],
)
def test_format_is_set_or_follows_the_name(name: str, setting: str, expected: str) -> None:
    assert input_format(name, make_config(corpus__input_format=setting)) == expected
