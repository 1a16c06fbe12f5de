"""Rows of tokens that another program has made are compared with the vocabulary before a run."""

from __future__ import annotations

from typing import Any

import pytest

from corpus.tokens.vocabulary import Vocabulary
from pipeline_config import load_preset, with_overrides
from pipeline_store import uris
from pipeline_store.layout import StoreLayout
from preflight.run.inputs import input_problems
from tests.beam_jobs.workspace import as_text, documents
from tests.corpus.converted import VOCABULARY, convert

DAY = "2026-01-31"


@pytest.fixture
def store(tmp_path: Any) -> StoreLayout:
    layout = StoreLayout(str(tmp_path))
    made = convert(as_text(documents(12)), "text")
    uris.write(f"{layout.root}/corpus/{DAY}/a.tfrecord", made.files[made.rows()])
    return layout


def problems(store: StoreLayout, vocabulary: Vocabulary) -> list[str]:
    uris.write(f"{store.root}/given.txt", vocabulary.to_bytes())
    config = with_overrides(load_preset("smoke"), {"vocabulary.uri": "given.txt"})
    return list(input_problems(config, DAY, store))


def test_rows_without_a_vocabulary_are_refused(store: StoreLayout) -> None:
    [line] = input_problems(load_preset("smoke"), DAY, store)
    assert line.startswith("vocabulary.uri: ")
    assert line.endswith("whose rows have tokens of a vocabulary; name that one.")


def test_rows_of_another_vocabulary_are_named(store: StoreLayout) -> None:
    assert problems(store, VOCABULARY) == []
    special, other = VOCABULARY.tokens[:5], VOCABULARY.tokens[5:]
    words = (*special, *(f"[unused{number}]" for number in range(9)), *other)
    [line] = problems(store, Vocabulary(words))
    assert "a.tfrecord were made with another vocabulary: " in line
    assert line.endswith("the ids mean other words, such as those of another casing.")
    [line] = problems(store, Vocabulary(VOCABULARY.tokens[:30]))
    assert "but the vocabulary has 30" in line


def test_a_file_of_something_else_is_named(store: StoreLayout) -> None:
    uris.write(f"{store.root}/corpus/{DAY}/a.tfrecord", b"no records, but some text")
    [line] = problems(store, VOCABULARY)
    assert "it is read as TFRecords, see corpus.input_format" in line
