"""The labelled tasks: no answer stands in their examples, and no text is on two sides."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from beam_jobs.labelled.description import check_task
from local.demo.tasks import docstrings, examples, modules, neighbours, word_order
from local.demo.tasks.baselines import linear, majority
from local.demo.tasks.examples import SPLITS, Example, Task
from local.demo.tasks.modules import Docstring, Use, harvest
from local.demo.tasks.results import Result, compare
from pipeline_store.layout import StoreLayout
from tests.local.demo.docstrings import documented


def test_a_module_is_on_one_side_and_no_paragraph_is_on_two() -> None:
    found = harvest(max_characters=30_000)
    assert {docstring.package for docstring in found} == set(modules.PACKAGES)
    paragraphs = [part for docstring in found for part in docstring.paragraphs]
    assert len(paragraphs) == len(set(paragraphs))
    uses = {(docstring.package, docstring.module, docstring.use) for docstring in found}
    assert len(uses) == len({use[:2] for use in uses})
    assert {use[2] for use in uses} == set(Use)


def test_a_first_line_is_not_in_the_body() -> None:
    found = [one for one in harvest(max_characters=30_000) if one.body]
    assert found
    for one in found:
        assert "\n" not in one.first_line
        assert one.paragraphs[-len(one.body) :] == one.body
        assert one.first_line not in one.body
    # What else a docstring has is its first paragraph, or was seen before.
    assert any(one.paragraphs[0].startswith(one.first_line) for one in found)


def test_what_names_a_package_is_masked() -> None:
    text = (
        "Convert a NumPy array, np or a pandas.DataFrame, to TensorFlow's tf.Tensor by "
        "google-cloud and pyspark.sql; see sub.module_name of scikit-learn."
    )
    assert docstrings.masked(text) == (
        "Convert a name array, name or a name, to name's name by name and name; see name of name."
    )


def test_docstrings_that_resemble_an_earlier_one_are_left_out() -> None:
    first = "Return the sum of all values along the given axis of the table, skipping what is nan."
    copy = first.replace("sum", "product")
    other = "Open a connection to the server and keep it until the caller closes the session again."
    module = next(d.module for d in documented(200) if d.package == "numpy" and d.use is Use.TRAIN)
    found = [Docstring("numpy", module, (text,)) for text in (first, copy, other)]
    task = docstrings.build(found)
    assert {example.texts[0] for example in task.splits[Use.TRAIN]} == {first, other}


def test_a_label_has_at_most_so_many_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docstrings, "PER_PACKAGE", dict.fromkeys(SPLITS, 5))
    task = docstrings.build(documented(300))
    for split in SPLITS:
        assert Counter(e.label for e in task.splits[split]) == {"numpy": 5, "pandas": 5}


def test_neighbours_are_half_of_the_examples_and_the_rest_follow_elsewhere() -> None:
    found = documented(400)
    follows: dict[str, str] = {}
    places: dict[str, str] = {}
    for docstring in found:
        sentences = docstring.paragraphs[0].replace("value. ", "value.\n").split("\n")
        follows |= dict(pairwise(sentences))
        places |= dict.fromkeys(sentences, docstring.module)
    task = neighbours.build(found)
    for split in SPLITS:
        pairs = task.splits[split]
        labels = Counter(example.label for example in pairs)
        assert abs(labels[neighbours.NEIGHBOURS] - labels[neighbours.APART]) <= 1
        for (first, second), label in pairs:
            assert (follows[first] == second) is (label == neighbours.NEIGHBOURS)
            assert first != second
            # Whatever the label, the second sentence follows some sentence of the split.
            assert second in follows.values()
        apart = [e.texts for e in pairs if e.label == neighbours.APART]
        here = sum(places[first] == places[second] for first, second in apart)
        assert here >= len(apart) // 2


def test_two_words_of_every_other_sentence_have_changed_places() -> None:
    found = documented(60)
    # What is pre-trained on is in no task, wherever it stands again.
    pretrained = next(docstring for docstring in found if docstring.use is Use.PRETRAINING)
    tested = next(docstring for docstring in found if docstring.use is Use.TEST)
    written = {
        tuple(sorted(sentence.split())): (sentence, docstring.use)
        for docstring in found
        for sentence in docstring.paragraphs[0].replace("value. ", "value.\n").split("\n")
    }
    task = word_order.build([tested._replace(paragraphs=pretrained.paragraphs), *found])
    used = []
    for split in SPLITS:
        labels = Counter(example.label for example in task.splits[split])
        assert 0 <= labels[word_order.AS_WRITTEN] - labels[word_order.SWAPPED] <= 1
        for (text,), label in task.splits[split]:
            source, use = written[tuple(sorted(text.split()))]
            assert use is split
            pairs = enumerate(zip(source.split(), text.split(), strict=True))
            moved = [place for place, (one, other) in pairs if one != other]
            if label == word_order.AS_WRITTEN:
                assert moved == []
            else:
                assert len(moved) == moved[1] - moved[0] + 1 == 2
                assert (text.split()[0], text.split()[-1]) == ("The", "value.")
            used.append(source)
    assert len(used) == len(set(used)) > 50


def task_of(texts: dict[str, list[tuple[str, ...]]]) -> Task:
    found = [Example(text, label) for label, column in texts.items() for text in column]
    return Task("some", dict.fromkeys(SPLITS, found))


@pytest.mark.parametrize("build", [docstrings.build, neighbours.build, word_order.build])
def test_the_pipeline_accepts_what_is_written(tmp_path: Path, build: object) -> None:
    assert callable(build)
    task: Task = build(documented(300))
    store = StoreLayout(str(tmp_path))
    for _ in range(2):
        examples.write(task, Path(store.task(task.name).root))
        assert list(check_task(store, task.name)) == []
    lines = Path(store.task(task.name).root, "train.tsv").read_text().splitlines()
    assert len(lines) == 1 + len(task.splits[Use.TRAIN])


def test_simple_methods_do_what_they_can() -> None:
    texts = {
        "a": [(f"red apple number{n}",) for n in range(30)],
        "b": [(f"green pear number{n}",) for n in range(20)],
    }
    task = task_of(texts)
    assert majority(task).accuracy == [0.6]
    assert majority(task).macro_f1 == [pytest.approx(0.375)]
    assert {name: found.accuracy for name, found in linear(task).items()} == {"tfidf": [1.0]}


def test_words_in_common_tell_pairs() -> None:
    names = [f"word{n}" for n in range(40)]
    texts = {
        "same": [(name, f"{name} again") for name in names],
        "other": [(name, f"{names[n - 7]} again") for n, name in enumerate(names)],
    }
    found = linear(task_of(texts))
    assert found["tfidf_cosine"].accuracy == [1.0]
    assert set(found) == {"tfidf", "tfidf_cosine"}


def result(name: str, right: list[float]) -> Result:
    array = np.array(right)
    return Result(name, [float(array.mean())], [0.0], array)


def test_a_method_beats_another_only_beyond_chance() -> None:
    one, other = result("one", [1.0] * 80 + [0.0] * 20), result("other", [0.0] * 30 + [1.0] * 70)
    found = compare(one, other)
    assert found.difference == pytest.approx(0.1)
    # Different on 50 of 100 examples: a deviation of 0.7, so 0.14 of the mean.
    assert found.low == pytest.approx(0.1 - 0.138, abs=2e-3)
    assert not found.beats
    assert "one does not beat other: +10.0 points" in str(found)
    assert "beats" in str(compare(one, result("none", [0.0] * 100)))
    assert "is beaten by" in str(compare(result("none", [0.0] * 100), one))
