from __future__ import annotations

from pathlib import Path

import pytest

from beam_jobs.errors import UserError
from beam_jobs.inputs import input_format, list_inputs
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
        ("a.jsonl", "sentences", "sentences"),
        ("a.txt", "jsonl", "jsonl"),
    ],
)
def test_format_is_set_or_follows_the_name(name: str, setting: str, expected: str) -> None:
    assert input_format(name, make_config(corpus__input_format=setting)) == expected
