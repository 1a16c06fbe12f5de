"""Examples of all formats: equal content is equal examples, whatever the file is like."""

from __future__ import annotations

import csv
import io
import json
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corpus.labelled.labels import Unusable
from corpus.labelled.reading import Example, has_text, read_examples
from corpus.text.drops import RejectedFileError
from corpus.text.inputs import InputFormat
from corpus.tokens.tokenizing import make_tokenizer
from pipeline_config import TaskConfig
from tests.corpus.converted import VOCABULARY
from tests.corpus.input_bytes import COMPRESS, any_bytes, wrapped

TASK = TaskConfig(text_pair_column="other", unicode_normalization="none")
SINGLE = TaskConfig()
TOKENIZER = make_tokenizer(VOCABULARY, True)
NAMES = ["text", "other", "label"]
# Control characters make a file binary if there are many of them.
TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], include_characters="\n\r\t"), max_size=20
).map(lambda text: f"a{text}")
LINES = st.lists(st.tuples(TEXT, TEXT, st.sampled_from(["x", "y"])), max_size=6)


def read(
    data: bytes, input_format: InputFormat, task: TaskConfig = TASK, *, labelled: bool = True
) -> list[Example | Unusable]:
    return list(read_examples(io.BytesIO(data), input_format, task, labelled=labelled))


def as_table(lines: list[Any], delimiter: str = ",", end: str = "\n") -> bytes:
    file = io.StringIO()
    # The reader takes \r for a line's end only before \n, so a field with one has to be quoted.
    writer = csv.writer(file, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([NAMES, *lines])
    return file.getvalue().encode()


def as_jsonl(lines: list[Any]) -> bytes:
    return "".join(
        json.dumps(dict(zip(NAMES, line, strict=True))) + "\n" for line in lines
    ).encode()


def as_parquet(lines: list[Any]) -> bytes:
    columns = zip(*lines, strict=True) if lines else [[], [], []]
    arrays = [pa.array(list(column), pa.string()) for column in columns]
    data = io.BytesIO()
    pq.write_table(pa.table(dict(zip(NAMES, arrays, strict=True))), data)
    return data.getvalue()


def content(found: list[Example | Unusable]) -> list[Any]:
    assert all(isinstance(one, Example) for one in found)
    return [(*one.texts, *one.label) for one in found]  # type: ignore[union-attr, misc]


@settings(deadline=None)
@given(LINES)
def test_all_formats_hold_the_same_examples(lines: list[Any]) -> None:
    wanted = [tuple(line) for line in lines]
    assert content(read(as_jsonl(lines), "jsonl")) == wanted
    assert content(read(as_parquet(lines), "parquet")) == wanted
    # A line ends with \n or \r\n in a table, also within quotes.
    tables = [(one.replace("\r", " "), two.replace("\r", " "), x) for one, two, x in lines]
    assert content(read(as_table(tables), "csv")) == tables
    assert content(read(as_table(tables, "\t"), "tsv")) == tables


@pytest.mark.parametrize("kind", COMPRESS)
def test_every_compression_is_read(kind: str) -> None:
    lines = [("a", "b", "x")]
    for data, input_format in ((as_table(lines), "csv"), (as_parquet(lines), "parquet")):
        assert content(read(COMPRESS[kind](data), input_format)) == lines  # type: ignore[arg-type]


def test_line_is_that_where_the_example_begins() -> None:
    data = b'\xef\xbb\xbftext,label\r\n"two\r\nlines",x\r\n\r\nlast,y\r\n'
    assert read(data, "csv", SINGLE) == [
        Example(("two\nlines",), ("x",), 2),
        Example(("last",), ("y",), 5),
    ]
    assert [one.line for one in read(as_parquet([("a", "b", "x")] * 3), "parquet")] == [1, 2, 3]


def test_columns_name_those_of_a_file_without_header() -> None:
    task = TaskConfig(columns=["id", "label", "text"])
    assert read(b"1\tx\tone\n", "tsv", task) == [Example(("one",), ("x",), 1)]


def test_quotes_are_text_where_nothing_is_quoted() -> None:
    task = TaskConfig(quotechar="")
    assert read(b'text\tlabel\n"so it begins\tx\n', "tsv", task) == [
        Example(('"so it begins',), ("x",), 2)
    ]
    with pytest.raises(RejectedFileError) as caught:
        read(b'text\tlabel\n"so it begins\tx\n', "tsv", SINGLE)
    assert "the quote that is open in the record of line 2" in caught.value.detail


def test_missing_columns_are_all_named() -> None:
    with pytest.raises(RejectedFileError) as caught:
        read(b"I liked it\t1\n", "tsv", TASK)
    assert caught.value.detail == (
        "no column that text_column names, no column that text_pair_column names, no column that "
        "label_column names; the file has 2 column(s); columns are separated by '\\t'; if the file "
        "has no header line, name its columns in `columns`"
    )
    (bad,) = read(b'{"text": "a"}\n', "jsonl")
    assert isinstance(bad, Unusable)
    assert (bad.reason, bad.line) == ("missing_field", 1)
    assert bad.detail == (
        "no field that text_pair_column names, that label_column names in an object of 1 field(s)"
    )


def test_labels_of_examples_to_predict_are_not_looked_at() -> None:
    assert read(b"text\none\n", "tsv", SINGLE, labelled=False) == [Example(("one",), None, 2)]
    assert read(b"text\tlabel\none\t\n", "tsv", SINGLE, labelled=False) == [
        Example(("one",), None, 2)
    ]


def test_parquet_labels_may_be_numbers_truth_values_dictionaries_and_lists() -> None:
    def label(values: pa.Array, task: TaskConfig = SINGLE) -> Any:
        data = io.BytesIO()
        pq.write_table(pa.table({"text": ["a"], "label": values}), data)
        (found,) = read(data.getvalue(), "parquet", task)
        return found.label if isinstance(found, Example) else found.reason

    assert label(pa.array([3])) == ("3",)
    assert label(pa.array([True])) == ("true",)
    assert label(pa.array(["x"]).dictionary_encode()) == ("x",)
    assert label(pa.array([["y", "x"]]), TaskConfig(kind="multi_label")) == ("x", "y")
    assert label(pa.array([0.5]), TaskConfig(kind="regression")) == 0.5
    assert label(pa.array([None], pa.string())) == "missing_label"
    assert label(pa.array([b"\xff"])) == "invalid_utf8"


def test_wrong_encoding_costs_the_example_and_is_named() -> None:
    data = "text\tlabel\nfine\tx\nna\u00efve\ty\n".encode("latin-1")
    fine, bad = read(data, "tsv", SINGLE)
    assert isinstance(fine, Example)
    assert bad == Unusable(
        bad.reason,  # type: ignore[union-attr]
        "line 3: no UTF-8 after 2 bytes: invalid continuation byte",
        3,
    )
    with pytest.raises(RejectedFileError, match="UTF-16 data"):
        read("text\tlabel\n".encode("utf-16"), "tsv", SINGLE)


@pytest.mark.parametrize("text", ["", " ", "\t", "\u200b", "\u0301", "\ufffd", "\u3000", "\x07"])
def test_text_without_a_sign_is_empty(text: str) -> None:
    assert not has_text(text)
    (found,) = read(as_jsonl([(text, "a", "x")]), "jsonl")
    assert isinstance(found, Unusable)
    assert (found.reason, found.detail) == (
        "empty_text",
        "no text in the column that text_column names",
    )


@settings(deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5))
def test_what_has_text_has_tokens(text: str) -> None:
    ids, _ = TOKENIZER.encode([text])
    if has_text(text):
        assert len(ids)


def test_texts_are_normalised_as_the_task_says() -> None:
    decomposed = "e\u0301 \ufb01"
    for form, wanted in (("NFC", "\u00e9 \ufb01"), ("NFKC", "\u00e9 fi"), ("none", decomposed)):
        task = TaskConfig(unicode_normalization=form)
        (found,) = read(as_jsonl([(decomposed, "a", "x")]), "jsonl", task)
        assert isinstance(found, Example)
        assert found.texts == (wanted,)


@settings(deadline=None)
@given(
    wrapped(any_bytes()),
    st.sampled_from(["csv", "tsv", "jsonl", "parquet"]),
    st.sampled_from(["classification", "multi_label", "regression"]),
)
def test_any_bytes_have_a_defined_outcome(data: bytes, input_format: Any, kind: Any) -> None:
    found: list[Example | Unusable] = []
    with suppress(RejectedFileError):
        found = read(data, input_format, TaskConfig(kind=kind, label_column="id"))
    for one in found:
        assert one.texts[0].encode() if isinstance(one, Example) else one.detail
