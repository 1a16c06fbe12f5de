"""What the check of the recipe says of losses, and what its quickest part finds."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from pipeline_store.formats import (
    EncoderSource,
    EvaluationReport,
    PaidVerdict,
    PartitionManifest,
    Split,
    TaskSplit,
)
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.manifests import record_file, shard, store_partition
from tests.beam_jobs.workspace import document
from tests.model_registry.test_gate import NEW, VERSION, Documents, report
from tests.model_registry.test_gate_retrieval import measured, ranks_of
from tests.trained_models.downstream.written import task_manifest
from trained_models.downstream.comparison import compare
from trained_models.downstream.training_text import InTrainingText
from verification.benchmarks.recipe_check import __main__ as command
from verification.benchmarks.recipe_check import (
    file_renamed,
    file_revised,
    leaked_task,
    memorizing,
    pages,
    paragraphs,
    pooler,
    retrieval_collapse,
)
from verification.benchmarks.recipe_check.drawn_trials import DrawnModel, write_trial

START, WORSE, BETTER = 6.3, [6.3, 7.1, 7.0], [6.2, 6.0, 6.1]


class Lab:
    """Trains nothing; its models have the losses that are given."""

    def __init__(self, root: Path, losses: list[float]) -> None:
        self.root, self.losses = root, losses
        self.trained: list[dict[str, Any]] = []

    def write_corpus(self) -> Path:
        folder = self.root / "2026-01-02"
        folder.mkdir()
        (folder / "a.txt").write_text("first document.\n\n" + "x" * 80_000 + "\n\n")
        return self.root

    def first(self) -> str:
        return "first"

    def prepare(self, partition: str, settings: dict[str, Any]) -> str:
        return f"{partition}-{settings['masking.dynamic']}"

    def train(self, name: str, overrides: dict[str, Any], partition: str, **how: Any) -> str:
        self.trained.append(overrides | how)
        return name

    def evaluate(self, versions: list[str], partitions: list[str]) -> Any:
        assert len(versions) == len(self.losses)
        sets = [SimpleNamespace(sets=[SimpleNamespace(loss=loss)]) for loss in self.losses]
        return SimpleNamespace(models=sets)


@pytest.mark.parametrize(
    ("same", "new", "holds"),
    [
        (WORSE, BETTER, True),
        # One seed that learns in spite of it, or does not learn with new masks.
        ([6.29, 7.1, 7.0], BETTER, False),
        (WORSE, [6.2, 6.3, 6.1], False),
    ],
)
def test_no_seed_may_be_an_exception(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    same: list[float],
    new: list[float],
    holds: bool,
) -> None:
    lab = Lab(tmp_path, [START, *same, *new])
    monkeypatch.setattr(memorizing, "Lineages", lambda *_: lab)
    found = memorizing.check(tmp_path)
    assert found.before == {"start": START, "losses": same}
    assert found.after == {"start": START, "losses": new}
    assert found.holds is holds
    assert (tmp_path / "little" / "documents.txt").read_text() == "first document.\n"
    # They differ in nothing but masks and seed.
    assert {str(one.pop("manifest")) for one in lab.trained} == {"little-False", "little-True"}
    for one in lab.trained:
        assert one.pop("parent") == "first"
        assert set(one) == {"masking.dynamic", "corpus.duplicates", "training.random_seed"}


def test_the_limit_on_what_is_forgotten_stops_a_ratchet(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "ratchet"]) == 0
    line, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert line["before"] == {"promoted": 12, "lost": pytest.approx(1.02)}
    assert line["after"] == {"promoted": 2, "lost": pytest.approx(0.17)}
    assert line["holds"]
    assert summary["failed"] == []


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--only", "ratchet,rachet"])
    said = capsys.readouterr().err
    assert "there is no check rachet; there are ratchet, first-gate, memorizing" in said


def made_pages(count: int = 24, paragraphs: int = 40, sentences: int = 1) -> dict[str, str]:
    """Return made-up pages by name."""
    return {
        f"page-{number:02}": "\n\n".join(
            document(paragraphs * number + part, sentences) for part in range(paragraphs)
        )
        for number in range(count)
    }


SIDES = {b"a": True, b"b": False, b"c": False}
MOVED = {b"a": False, b"b": True, b"c": False}


@pytest.mark.parametrize(
    ("named", "filed", "holds"),
    [
        ((SIDES, MOVED), (SIDES, SIDES), True),
        # The key of names moves nothing; that of contents does; it loses a document.
        ((SIDES, SIDES), (SIDES, SIDES), False),
        ((SIDES, MOVED), (SIDES, MOVED), False),
        ((SIDES, MOVED), (SIDES, {b"a": True, b"b": False}), False),
        # Nothing is held out, so nothing can move.
        ((SIDES, MOVED), ({b"a": False}, {b"a": False}), False),
    ],
)
def test_a_renamed_file_may_not_move_a_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: Any, filed: Any, holds: bool
) -> None:
    found = iter([*named, *filed])
    monkeypatch.setattr(file_renamed, "pages", lambda: made_pages(2, 2))
    monkeypatch.setattr(file_renamed, "sides", lambda *_: next(found))
    assert file_renamed.check(tmp_path).holds is holds


@pytest.mark.thorough
def test_files_are_renamed_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_renamed, "pages", lambda: made_pages(paragraphs=4))
    found = file_renamed.check(tmp_path)
    assert found.before["documents"] == found.after["documents"] == 96
    assert found.holds
    # The last one's files have their other names.
    corpus = tmp_path / "file-renamed" / "corpus" / pages.PARTITION
    assert sum(path.name.startswith("renamed-") for path in corpus.iterdir()) == 12


HELD, TRAINED = Split.VALIDATION, Split.TRAIN
YESTERDAY = {"a": HELD, "b": TRAINED, "c": TRAINED}


@pytest.mark.parametrize(
    ("drawn", "kept", "holds"),
    [
        ({"a": TRAINED, "b": TRAINED, "c": HELD}, YESTERDAY, True),
        # A draw moves nothing; the lineage moves one either way; it drops one.
        (YESTERDAY, YESTERDAY, False),
        ({**YESTERDAY, "a": TRAINED}, {**YESTERDAY, "a": TRAINED}, False),
        ({**YESTERDAY, "a": TRAINED}, {**YESTERDAY, "b": HELD}, False),
        ({**YESTERDAY, "a": TRAINED}, {"a": HELD, "b": TRAINED}, False),
    ],
)
def test_a_revised_file_may_not_change_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, drawn: Any, kept: Any, holds: bool
) -> None:
    found = iter([YESTERDAY, drawn, kept])
    monkeypatch.setattr(file_revised, "pages", lambda: made_pages(2, 2))
    monkeypatch.setattr(file_revised, "sides", lambda *_: next(found))
    assert file_revised.check(tmp_path).holds is holds


@pytest.mark.thorough
def test_files_are_revised_for_real(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_revised, "pages", lambda: made_pages(paragraphs=4))
    after = file_revised.check(tmp_path).after
    assert (after["files"], after["dropped"]) == (24, 0)
    assert after["held_out_then_trained_on"] == after["trained_on_then_held_out"] == 0


def partition(folder: Path, *, fill: float, shared: bool) -> PartitionManifest:
    """Return a partition of two files: both on both sides, or each on one."""
    rows = {Split.TRAIN: 90, Split.VALIDATION: 10}
    train, held_out = (
        record_file(split, 128, count, tokens=int(count * 128 * fill))
        for split, count in rows.items()
    )
    files = [[train, held_out]] * 2 if shared else [[train], [held_out]]
    shards = [shard(number, files=one) for number, one in enumerate(files)]
    return store_partition(StoreLayout(str(folder)), shards)[0]


@pytest.mark.parametrize(
    ("three", "holds"),
    [
        ([(0.4, 1.0), (0.4, 0.0), (0.9, 0.0)], True),
        # The fault does not show: full rows, or files that are held out as a whole.
        ([(0.9, 1.0), (0.4, 0.0), (0.9, 0.0)], False),
        ([(0.4, 0.0), (0.4, 0.0), (0.9, 0.0)], False),
        # It is there still: the defaults part files, or say nothing; whole files leave padding.
        ([(0.4, 1.0), (0.4, 1.0), (0.9, 0.0)], False),
        ([(0.4, 1.0), (0.9, 0.0), (0.9, 0.0)], False),
        ([(0.4, 1.0), (0.4, 0.0), (0.7, 0.0)], False),
    ],
)
def test_paragraphs_waste_rows_and_are_held_out_beside_their_neighbors(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    three: list[tuple[float, float]],
    holds: bool,
) -> None:
    made = iter(
        partition(tmp_path / str(number), fill=fill, shared=bool(shared))
        for number, (fill, shared) in enumerate(three)
    )
    monkeypatch.setattr(paragraphs, "pages", lambda: made_pages(2, 2))
    monkeypatch.setattr(paragraphs, "prepare", lambda *_: next(made))
    found = paragraphs.check(tmp_path)
    assert found.before["row_fill"] == pytest.approx(three[0][0], abs=0.01)
    assert found.before["held_out_beside_training"] == three[0][1]
    assert found.holds is holds


@pytest.mark.thorough
def test_pages_are_prepared_in_three_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paragraphs, "pages", made_pages)
    found = paragraphs.check(tmp_path)
    assert found.before["documents"] == 24 * 40
    assert found.holds


def test_drawn_models_are_right_where_they_are_told_to_be(tmp_path: Path) -> None:
    manifest, labels = task_manifest(), np.arange(300) % 3
    nobody = EncoderSource(uri=None, version_id=None)
    rates = np.where(labels == 0, 1.0, 0.5)
    models = (DrawnModel("model", nobody, rates, 1), DrawnModel("previous", nobody, rates - 0.4, 2))
    sides = [
        [write_trial(str(tmp_path), manifest, labels, one, seed) for seed in (1, 2)]
        for one in models
    ]
    stored, outputs = sides[0][0].predictions(TaskSplit.TEST)
    right = outputs.argmax(1) == stored
    assert (stored == labels).all()
    assert right[labels == 0].all()
    assert 0.35 < right[labels > 0].mean() < 0.65
    assert (outputs != sides[0][1].predictions(TaskSplit.TEST)[1]).any()
    found = compare(manifest, *sides)
    assert found.verdict is PaidVerdict.HELPED
    assert found.difference == pytest.approx(0.4, abs=0.1)


@pytest.mark.thorough
def test_a_leaked_task_is_found_out_only_by_looking(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaked_task, "pages", lambda: made_pages(paragraphs=20, sentences=2))
    monkeypatch.setattr(leaked_task, "LEAKED", 80)
    found = leaked_task.check(tmp_path)
    assert (found.before["found"], found.after["found"]) == (None, 80)
    assert found.holds
    searched = InTrainingText([pages.PARTITION])
    monkeypatch.setattr(leaked_task.training_text, "find", lambda *_: searched)
    found = leaked_task.check(tmp_path)
    assert found.after["verdict"] == "helped"
    assert not found.holds


class Writer:
    """An exporter that changes the published weights by this much; None: it leaves them out."""

    def __init__(self, pooler_by: float | None, others_by: float) -> None:
        self.pooler_by, self.others_by = pooler_by, others_by

    def write(self, name: str, folder: Path) -> None:
        folder.mkdir()
        save_file(self._tensors(), folder / "model.safetensors")

    def _tensors(self) -> dict[str, Any]:
        found = {"bert.encoder.weight": np.full((2, 2), 1 + self.others_by, np.float32)}
        if self.pooler_by is not None:
            for name in ("weight", "bias"):
                found[f"bert.pooler.dense.{name}"] = np.full(2, 1 + self.pooler_by, np.float32)
        return found


@pytest.mark.parametrize(
    ("before", "after", "holds"),
    [
        ((None, 0.5), (0.0, 0.5), True),
        # It was there before; it is gone still; it is another one; nothing was trained.
        ((0.0, 0.5), (0.0, 0.5), False),
        ((None, 0.5), (None, 0.5), False),
        ((None, 0.5), (0.25, 0.5), False),
        ((None, 0.0), (0.0, 0.0), False),
    ],
)
def test_a_pooler_has_to_leave_as_it_came(
    tmp_path: Path, before: Any, after: Any, holds: bool
) -> None:
    source = tmp_path / "source"
    Writer(0, 0).write("hugging_face", source)
    figures = [
        pooler.export(Writer(*one), tmp_path / str(number), source)
        for number, one in enumerate((before, after))
    ]
    assert pooler.is_kept(*figures) is holds


@pytest.mark.thorough
def test_a_pooler_is_imported_trained_beside_and_exported(tmp_path: Path) -> None:
    found = pooler.check(tmp_path)
    assert found.before["pooler_tensors"] == 0
    assert found.after["pooler_difference"] == 0
    assert found.holds


class Scored:
    """Trains nothing; the update has this loss, compared with the model in use, and recall@1."""

    def __init__(self, shift: float, found: int) -> None:
        self.shift, self.found = shift, found

    def first(self) -> str:
        return f"versions/{VERSION}"

    def train(self, *_: Any, parent: str) -> str:
        assert parent == self.first()
        return "update"

    def evaluate(self, versions: list[str], _: list[str]) -> EvaluationReport:
        assert versions == ["update", self.first()]
        documents = Documents(NEW)
        candidate = measured(documents.score(self.shift), ranks_of(self.found, 100))
        baseline = measured(documents.score(0, 0), ranks_of(60, 100))
        return report([candidate], [baseline], {NEW: 7.0}).model_copy(update={"current_set": NEW})


@pytest.mark.parametrize(
    ("shift", "found", "holds"),
    [
        (-0.2, 5, True),
        # The embeddings are as good as they were; the loss tells already.
        (-0.2, 60, False),
        (0.2, 5, False),
    ],
)
def test_only_retrieval_tells_ruined_embeddings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: float, found: int, holds: bool
) -> None:
    monkeypatch.setattr(retrieval_collapse, "Lineages", lambda *_: Scored(shift, found))
    finding = retrieval_collapse.check(tmp_path)
    assert finding.after["recall_at_1"] == [0.6, found / 100]
    assert finding.holds is holds
