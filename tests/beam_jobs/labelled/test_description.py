"""task.toml, the files that it names, and the checks that cost nothing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from beam_jobs.labelled.description import check_task, load_task, task_files
from corpus.errors import UserError
from pipeline_config import ConfigError, TaskConfig
from tests.beam_jobs.labelled.tasks import NAME, TaskBench, rows, tsv


def violations(bench: TaskBench, content: str, name: str = NAME) -> list[str]:
    bench.describe()
    (bench.folder / "task.toml").write_text(content)
    with pytest.raises(ConfigError) as caught:
        load_task(bench.store, name)
    uri = str(bench.folder / "task.toml")
    return [line.removeprefix(f"{uri}: ") for line in caught.value.violations]


def test_description_is_read(bench: TaskBench) -> None:
    bench.describe(kind="regression", text_column="sentence")
    assert load_task(bench.store, NAME) == TaskConfig(kind="regression", text_column="sentence")


def test_every_broken_rule_is_named(bench: TaskBench) -> None:
    lines = violations(bench, 'text_colum = "a"\nkind = "ranking"\nvalidation_fraction = 2.0\n')
    assert (
        lines[0] == "its setting number 1: there is none of that name. Did you mean 'text_column'?"
    )
    assert lines[1].startswith("kind: Input should be 'classification', ")
    assert lines[2].startswith("validation_fraction: Input should be less than or equal to 1")
    (line,) = violations(bench, 'kind = "regression"\nlabels = ["a"]\n')
    assert line.startswith("labels: a regression task has numbers and no labels")
    (line,) = violations(bench, "kind = regression")
    assert line.startswith("it is no TOML file (line 1, column 8)")


def test_missing_task_is_named_with_those_that_exist(bench: TaskBench) -> None:
    (line,) = violations(bench, "", name="tyo")
    assert line.startswith("task 'tyo': ")
    assert line.endswith("does not exist. The store has toy; write the file, or name another task.")
    (line,) = violations(bench, "", name="../toy")
    assert line.startswith("task '../toy': that is no task's name")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"test": "test.csv"}, "task 'toy': test: no file matches "),
        ({"test": "*.tsv"}, "train.tsv is named by train and test; each example may be in one"),
        ({"train": "notes"}, "notes ends in none of .tsv, .csv, .jsonl, .parquet (also before"),
        ({"train": "part-*"}, "1 of 2 files of a set are missing: part-1-of-2.csv"),
    ],
)
def test_wrong_files_are_named(bench: TaskBench, settings: dict[str, str], message: str) -> None:
    bench.describe(**settings)
    for name in ("train.tsv", "notes", "part-0-of-2.csv"):
        bench.put(name, tsv(rows(4)))
    with pytest.raises(UserError) as caught:
        task_files(bench.store, NAME, load_task(bench.store, NAME))
    assert message in str(caught.value)
    assert message in "".join(check_task(bench.store, NAME))


def test_patterns_are_below_the_task_or_anywhere(bench: TaskBench) -> None:
    bench.describe(train="data/*.tsv", test=str(bench.folder / "elsewhere.csv"))
    bench.put("data/b.tsv", tsv(rows(4)))
    bench.put("data/a.tsv", tsv(rows(4)))
    bench.put("elsewhere.csv", "text,label\na,b\n")
    found = task_files(bench.store, NAME, load_task(bench.store, NAME))
    names = {
        split: [uri.removeprefix(f"{bench.folder}/") for uri in found[split]] for split in found
    }
    assert names == {"train": ["data/a.tsv", "data/b.tsv"], "test": ["elsewhere.csv"]}


def test_first_examples_are_looked_at(bench: TaskBench) -> None:
    bench.describe(test="test.*", predict="predict.*")
    bench.put("train.tsv", tsv([["", "a"], *rows(4)]))
    bench.put("test.tsv", tsv([["a", ""], ["b", ""]]))
    bench.put("predict.tsv", tsv([["a"]], ["sentence"]))
    lines = list(check_task(bench.store, NAME))
    assert lines == [
        (
            f"task 'toy': test: {bench.folder}/test.tsv: none of its first examples can be used; "
            "line 2: the label is empty."
        ),
        (
            f"task 'toy': predict: {bench.folder}/predict.tsv: no column that text_column "
            "names; the file has 1 column(s); columns are separated by '\\t'; if the file has no "
            "header line, name its columns in `columns`."
        ),
    ]
    bench.put("test.tsv", tsv([]))
    bench.put("predict.tsv", tsv([["a"]], ["text"]))
    (line,) = check_task(bench.store, NAME)
    assert line.endswith("test.tsv: there is no example in it.")
    bench.put("test.tsv", tsv(rows(1)))
    assert list(check_task(bench.store, NAME)) == []


def test_page_names_every_setting() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/finetuning-data.md").read_text()
    table = page.partition("## Settings")[2].partition("## Files")[0]
    first_cells = re.findall(r"^\| (.*?) \|", table, re.MULTILINE)[1:]
    named = {name for cell in first_cells for name in re.findall(r"`(\w+)`", cell)}
    assert named == set(TaskConfig.model_fields)
