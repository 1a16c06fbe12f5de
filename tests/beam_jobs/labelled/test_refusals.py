"""What makes a task unusable: each rule's message, with file and line, and what it lets pass."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_jobs.labelled.verdict import TaskRefusedError
from corpus.text.drops import DropReason
from pipeline_config import ConfigError
from tests.beam_jobs.labelled.tasks import (
    TEST,
    TRAIN,
    TaskBench,
    jsonl,
    label_counts,
    rows,
    sentence,
    tsv,
)
from tests.corpus.input_bytes import any_bytes

THREE = {"validation": "validation.*", "test": "test.*"}


def put_three(bench: TaskBench, **settings: Any) -> None:
    """Give each split a file of its own, without anything wrong."""
    bench.describe(**THREE | settings)
    for number, split in enumerate(["train", "validation", "test"]):
        bench.put(f"{split}.tsv", tsv(rows(12, first=100 * number)))


def add(bench: TaskBench, name: str, *lines: list[str]) -> None:
    """Append lines to a file of 12 examples, so that the first of them is line 14."""
    path = bench.folder / name
    path.write_text(path.read_text() + tsv(lines, header=()))


SMALL = (
    "test: 12 examples are too few for a verdict on models, at least 20 are needed; add examples "
    "to its files"
)


def other_warnings(warnings: list[str]) -> list[str]:
    """Return what is said besides that these test splits are small."""
    assert any("too few for a verdict" in line for line in warnings)
    return [line for line in warnings if "too few for a verdict" not in line]


def test_sound_task_is_not_refused(bench: TaskBench) -> None:
    put_three(bench)
    assert bench.tried()["warnings"] == [SMALL]
    bench.put("test.tsv", tsv(rows(20, first=200)))
    tried = bench.tried()
    assert (tried["dropped"], tried["warnings"]) == ({}, [])


def test_too_few_examples_to_test_models_on(bench: TaskBench) -> None:
    put_three(bench)
    bench.put("test.tsv", tsv(rows(1, first=200)))
    (reason,) = bench.refusal()
    assert reason == (
        "test: 1 example is too few to compare models on, at least 2 are needed; add examples to "
        "its files"
    )
    bench.put("test.tsv", tsv(rows(2, first=200)))
    (warning,) = bench.tried()["warnings"]
    assert warning.startswith("test: 2 examples are too few for a verdict on models")
    # Of those that are drawn, a larger share may do.
    bench.describe(validation="validation.*", test_fraction=0.3)
    *_, warning = bench.tried()["warnings"]
    assert warning.endswith("add examples, raise test_fraction=0.3, or name files")


@pytest.mark.parametrize("split", ["validation", "test"])
def test_label_that_training_does_not_have(bench: TaskBench, split: str) -> None:
    put_three(bench)
    add(bench, f"{split}.tsv", ["a new text", "newish"], ["another new text", "newish"])
    (reason,) = bench.refusal()
    detail = f"no training example has the label of this {split} example"
    assert reason == (
        f"{split}: 2 of 14 examples cannot be used, over max_bad_fraction=0: unseen_label 2 "
        f"({split}.tsv line 14: {detail}; {split}.tsv line 15: {detail})"
    )


def test_unusable_examples_that_are_allowed_are_left_out(bench: TaskBench) -> None:
    put_three(bench, max_bad_fraction=0.2)
    add(bench, "test.tsv", ["a new text", "newish"], ["another text", ""])
    add(bench, "train.tsv", ["", "pos"], ["\u200b", "neg"])
    prepared = bench.prepare()
    manifest = prepared.manifest
    assert manifest.dropped == {"empty_text": 2, "missing_label": 1, "unseen_label": 1}
    assert manifest.splits[TEST].records == 12
    letters = [
        (Path(one["file"]).name, one["line"], one["reason"]) for one in bench.letters(prepared)
    ]
    assert letters == [
        ("train.tsv", 14, "empty_text"),
        ("train.tsv", 15, "empty_text"),
        ("test.tsv", 15, "missing_label"),
        ("test.tsv", 14, "unseen_label"),
    ]
    assert manifest.warnings[0].startswith("train: 2 of 14 examples are left out: empty_text 2 (")
    assert manifest.warnings[1].startswith("test: 2 of 14 examples are left out: missing_label 1 (")


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        (
            "train.tsv",
            "sentence\tlabel\na\tb\n",
            "missing_column 1 (train.tsv: no column that text_column names",
        ),
        (
            "test.tsv",
            "text\ta\tb\n",
            "missing_column 1 (test.tsv: no column that label_column names",
        ),
        ("train.tsv", 'text\tlabel\n"open\tx\n', "unclosed_quote 1 (train.tsv: the quote that is"),
        ("train.tsv", "text\tlabel\n".encode("utf-16"), "binary_file 1 (train.tsv: UTF-16 data"),
    ],
)
def test_file_that_cannot_be_read(
    bench: TaskBench, name: str, content: str | bytes, reason: str
) -> None:
    put_three(bench, max_bad_fraction=1.0)
    bench.put(name, content)
    split = name.partition(".")[0]
    assert bench.refusal()[0].startswith(f"{split}: a file cannot be read: {reason}")


def test_wrong_encoding(bench: TaskBench) -> None:
    put_three(bench)
    path = bench.folder / "train.tsv"
    path.write_bytes(path.read_bytes() + "na\u00efve\tpos\n".encode("latin-1"))
    (reason,) = bench.refusal()
    assert reason == (
        "train: 1 of 13 examples cannot be used, over max_bad_fraction=0: invalid_utf8 1 "
        "(train.tsv line 14: line 14: no UTF-8 after 2 bytes: invalid continuation byte)"
    )


def test_all_texts_empty(bench: TaskBench) -> None:
    put_three(bench)
    bench.put("train.tsv", tsv([["", "pos"], [" ", "neg"], ["\u00ad", "neg"]]))
    (reason,) = bench.refusal()
    assert reason == (
        "train: none of 3 examples can be used: empty_text 3 (train.tsv line 2: no text in the "
        "column that text_column names; train.tsv line 3: no text in the column that text_column "
        "names; train.tsv line 4: no text in the column that text_column names)"
    )


def test_empty_file(bench: TaskBench) -> None:
    put_three(bench)
    bench.put("test.tsv", tsv([]))
    (reason,) = bench.refusal()
    assert reason == "test: no example is left. Add examples, or name files"


def test_label_not_in_the_list(bench: TaskBench) -> None:
    put_three(bench, labels=["neg", "pos"])
    add(bench, "train.tsv", ["some text", "positive"])
    (reason,) = bench.refusal()
    assert "unknown_label 1 (train.tsv line 14: none of the 2 labels)" in reason


def test_one_class_only(bench: TaskBench) -> None:
    put_three(bench)
    for number, split in enumerate(["train", "validation", "test"]):
        bench.put(f"{split}.tsv", tsv(rows(5, ["pos"], first=100 * number)))
    (reason,) = bench.refusal()
    assert reason == ("train: all 5 examples have the same label, so there is nothing to decide")


def test_several_labels_of_which_there_is_one(bench: TaskBench) -> None:
    wanted = (
        "there is one label only, which is a choice of two: set kind to 'classification' and write "
        "one of two labels for every example, such as 'spam' and 'not spam'"
    )
    put_three(bench, kind="multi_label")
    bench.put("train.tsv", tsv(rows(12, ["pos", ""])))
    for split in ("validation", "test"):
        bench.put(f"{split}.tsv", tsv(rows(20, ["pos", ""], first=len(split) * 100)))
    assert bench.refusal() == [f"train: {wanted}"]
    bench.describe(**THREE, kind="multi_label", labels=["pos"])
    with pytest.raises(ConfigError, match=re.escape(f"labels: {wanted}")):
        bench.tried()


def test_label_with_too_few_examples(bench: TaskBench) -> None:
    put_three(bench)
    add(bench, "train.tsv", ["a new text", "rare"])
    (reason,) = bench.refusal()
    assert reason == (
        "train: 1 of 3 labels have fewer examples than min_examples_per_label=2: 1 as at "
        "train.tsv line 14"
    )


def test_label_of_the_list_without_examples(bench: TaskBench) -> None:
    put_three(bench, labels=["neg", "pos", "never"])
    (reason,) = bench.refusal()
    assert reason.endswith("min_examples_per_label=2: 0 of number 3 of labels")


def test_regression_labels_that_are_no_numbers(bench: TaskBench) -> None:
    put_three(bench, kind="regression")
    for number, split in enumerate(["train", "validation", "test"]):
        bench.put(f"{split}.tsv", tsv(rows(12, ["1", "2.5"], first=100 * number)))
    add(bench, "train.tsv", ["a", "many"], ["b", "inf"], ["c", ""])
    (reason,) = bench.refusal()
    assert "label_is_no_number 2 (train.tsv line 14: no number but text of 4 characters" in reason
    assert "train.tsv line 15: no finite 32-bit number)" in reason
    assert "missing_label 1 (train.tsv line 16: the label is empty)" in reason


def test_regression_with_one_number(bench: TaskBench) -> None:
    put_three(bench, kind="regression")
    for number, split in enumerate(["train", "validation", "test"]):
        bench.put(f"{split}.tsv", tsv(rows(12, ["1"], first=100 * number)))
    assert bench.refusal() == ["train: all 12 examples have the same number"]


@pytest.mark.parametrize("twin", ["same words", " Same\u00a0 WORDS "])
def test_text_in_train_and_test(bench: TaskBench, twin: str) -> None:
    put_three(bench)
    add(bench, "train.tsv", ["same words", "pos"])
    add(bench, "test.tsv", [twin, "pos"])
    (reason,) = bench.refusal()
    assert reason == (
        "test: 1 of 13 examples have a text that is also in another split (test.tsv line 14 = "
        "train.tsv line 14), over max_leak_fraction=0"
    )


def test_text_in_validation_and_test(bench: TaskBench) -> None:
    put_three(bench)
    add(bench, "validation.tsv", ["same words", "pos"])
    add(bench, "test.tsv", ["same words", "neg"])
    reasons = bench.refusal()
    assert [reason.partition(":")[0] for reason in reasons] == ["validation", "test"]


def test_leaks_that_are_allowed_are_left_out_of_training(bench: TaskBench) -> None:
    put_three(bench, max_leak_fraction=0.1)
    add(bench, "train.tsv", ["same words", "pos"], ["same words", "pos"])
    add(bench, "test.tsv", ["same words", "pos"])
    prepared = bench.prepare()
    assert prepared.manifest.dropped == {"leaked": 2}
    assert label_counts(prepared.manifest, TRAIN) == {"neg": 6, "pos": 6}
    assert label_counts(prepared.manifest, TEST) == {"neg": 6, "pos": 7}
    assert [(one["line"], one["reason"]) for one in bench.letters(prepared)] == [
        (14, "leaked"),
        (15, "leaked"),
    ]
    assert other_warnings(prepared.manifest.warnings) == [
        (
            "test: 1 of 13 examples have a text that is also in another split (test.tsv line 14 = "
            "train.tsv line 14); copies in train are left out"
        )
    ]


def test_pairs_are_the_same_only_as_they_are(bench: TaskBench) -> None:
    bench.describe(text_pair_column="other", **THREE)
    header = ("text", "other", "label")
    for number, split in enumerate(["train", "validation", "test"]):
        lines = [[text, sentence(n), x] for n, (text, x) in enumerate(rows(8, first=50 * number))]
        # Only turned round, and cut elsewhere.
        turned = [["one two", "three"], ["three", "one two"], ["one", "two three"]][number]
        bench.put(f"{split}.tsv", tsv([*lines, [*turned, "pos"]], header))
    assert other_warnings(bench.tried()["warnings"]) == []


def test_same_text_with_other_labels_is_a_warning(bench: TaskBench) -> None:
    put_three(bench)
    add(bench, "train.tsv", ["same words", "pos"], ["Same words", "neg"], ["twice", "pos"],
        ["twice", "pos"])  # fmt: skip
    assert other_warnings(bench.tried()["warnings"]) == [
        (
            "train: 2 examples have the text of another one with another label (train.tsv line 14, "
            "train.tsv line 15)"
        )
    ]


def test_unbalanced_labels_are_a_warning(bench: TaskBench) -> None:
    put_three(bench)
    bench.put("train.tsv", tsv([*rows(42, ["neg"], 300), *rows(3, ["pos"], 400)]))
    bench.put("test.tsv", tsv(rows(5, ["neg"], 200)))
    assert other_warnings(bench.tried()["warnings"]) == [
        (
            "train: labels are unbalanced: one has 42 examples, another 3; look at macro_f1, or "
            "set finetuning.class_weights"
        ),
        "test: 1 labels have no example: as at train.tsv line 44",
    ]


def test_label_in_the_text(bench: TaskBench) -> None:
    put_three(bench)
    for number, split in enumerate(["train", "validation", "test"]):
        marked = [[f"{x}: {text}", x] for text, x in rows(12, first=100 * number)]
        bench.put(f"{split}.tsv", tsv(marked))
    (reason,) = bench.refusal()
    assert reason.startswith(
        "the texts give the labels away: who looks for the labels in them gets 100.0% right"
    )
    assert "over max_label_in_text=0.95" in reason
    bench.describe(**THREE, max_label_in_text=1.0)
    (warning,) = other_warnings(bench.tried()["warnings"])
    assert warning.startswith("the texts may give the labels away")


def test_text_column_that_is_the_label(bench: TaskBench) -> None:
    labels = [f"class {n}" for n in range(90)]
    bench.describe(text_column="topic", label_column="topic", min_examples_per_label=1)
    bench.put("train.tsv", tsv([[label] for label in labels], ["topic"]))
    message = "text_column, label_column: they have to name different columns"
    with pytest.raises(ConfigError, match=re.escape(message)):
        bench.tried()
    # The same under another name.
    bench.describe(text_column="subject", label_column="topic", **THREE)
    for number, split in enumerate(["train", "validation", "test"]):
        lines = [[f"Topic {x}{'.' * (n + 20 * number)}", x] for n, x in enumerate("abab" * 3)]
        bench.put(f"{split}.tsv", tsv(lines, ["subject", "topic"]))
    (reason,) = bench.refusal()
    assert reason.startswith("the texts give the labels away")


def test_too_much_is_cut(bench: TaskBench) -> None:
    put_three(bench)
    bench.max_seq_length = 8
    reasons = bench.refusal()
    assert reasons[0] == (
        "train: 12 of 12 examples (100.0%) are cut to max_seq_length=8, over "
        "max_truncated_fraction=0.5; raise one of them"
    )
    bench.describe(**THREE, max_truncated_fraction=1.0)
    tried = bench.tried()
    assert tried["truncated"][TRAIN] == 12
    assert other_warnings(tried["warnings"])[0] == (
        "train: 12 of 12 examples (100.0%) are cut to max_seq_length=8"
    )


def test_all_problems_are_collected_and_the_rest_is_listed(bench: TaskBench) -> None:
    put_three(bench)
    add(bench, "train.tsv", *[[sentence(700 + n), ""] for n in range(8)], ["one\ttoo many", "x"])
    add(bench, "test.tsv", ["text of test", "newish"])
    add(bench, "validation.tsv", rows(1)[0])
    with pytest.raises(TaskRefusedError) as caught:
        bench.prepare()
    error = caught.value
    assert not list(bench.folder.rglob("manifest.json"))
    assert [reason.partition(":")[0] for reason in error.reasons] == ["train", "test", "validation"]
    first = error.reasons[0]
    assert "missing_label 8 (train.tsv line 14: the label is empty; " in first
    assert "line 18: the label is empty; …), wrong_column_count 1 (train.tsv line 22: " in first
    message = str(error)
    assert message.startswith("task 'toy' is refused. (1) train: 9 of 21 examples cannot be used")
    letters = Path(message.partition("All unusable examples: ")[2])
    found = [json.loads(line) for line in letters.read_text().splitlines()]
    assert len(found) == 8 + 1 + 1 + 1
    assert {one["reason"] for one in found} == {
        "missing_label", DropReason.WRONG_COLUMN_COUNT, "unseen_label", "leaked"
    }  # fmt: skip
    assert "text of test" not in letters.read_text()


def test_missing_field_of_a_json_line(bench: TaskBench) -> None:
    bench.describe()
    lines = jsonl(rows(40)) + '{"text": "no label"}\n{"text": 5, "label": "x"}\nnot json\n'
    bench.put("train.jsonl", lines)
    (reason,) = bench.refusal()
    line = "no field that label_column names in an object of 1 field(s)"
    assert f"missing_field 1 (train.jsonl line 41: {line})" in reason
    assert (
        "field_is_not_text 1 (train.jsonl line 42: the field that text_column names is of type int)"
        in reason
    )
    assert "invalid_json 1 (train.jsonl line 43: " in reason


def test_rare_label_that_the_hash_put_into_test(bench: TaskBench) -> None:
    """The message says that it is about an example of the training file."""
    bench.describe(validation="validation.*", test_fraction=0.97)
    bench.put("train.tsv", tsv([*rows(400), *rows(3, ["rare"], 1000)]))
    bench.put("validation.tsv", tsv(rows(10, first=2000)))
    (reason,) = bench.refusal()
    assert reason.startswith("train: ")
    assert "no training example has the label of this test example" in reason


def test_split_without_a_share(bench: TaskBench) -> None:
    bench.describe(validation_fraction=0.0)
    bench.put("train.tsv", tsv(rows(100)))
    assert bench.refusal() == [
        "validation: no example is left; validation_fraction is 0. Add examples, or name files"
    ]


@settings(max_examples=25, deadline=None)
@given(any_bytes(), st.sampled_from(["tsv", "csv", "jsonl"]), st.booleans())
# The error of Python's reader has the tab in it.
@example(b'""\x0b', "tsv", True)
def test_any_file_is_used_or_refused_with_a_reason(
    bench_of_module: TaskBench, data: bytes, end: str, is_whole: bool
) -> None:
    bench = bench_of_module
    sound = {"tsv": tsv, "csv": lambda lines: tsv(lines).replace("\t", ","), "jsonl": jsonl}[end]
    bench.describe(train=f"train.{end}", max_bad_fraction=1.0, max_truncated_fraction=1.0)
    bench.put(f"train.{end}", data if is_whole else sound(rows(60)).encode() + data)
    try:
        tried = bench.tried()
    except TaskRefusedError as error:
        reasons = error.reasons
        assert reasons
        assert all(reason.isprintable() for reason in reasons)
        return
    assert sum(tried["records"].values()) >= 60 - sum(tried["dropped"].values())
