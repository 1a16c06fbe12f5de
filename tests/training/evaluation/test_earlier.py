"""What the evaluation of the version in use leaves to that of its successor."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline_store import uris
from pipeline_store.formats import EvaluationReport, FileDigest, ModelVersion, PartitionManifest
from pipeline_store.layout import RunLayout, VersionLayout
from tests.training.conftest import OneDay, TwoDays
from tests.training.corpora import tiny_config
from tests.training.jobs import BAD_DATA
from tests.training.versions import version_of
from training import evaluate
from training.evaluation import evaluator
from training.reporting.report import largest_differences

OLD, NEW = "2026-01-01", "2026-01-02"


class Lineage:
    """Two days, the model of the first as a version that was evaluated on it, and a candidate."""

    def __init__(self, two_days: TwoDays, folder: Path) -> None:
        day = OneDay(two_days.store, two_days.second, two_days.manifests[NEW]).copied_to(folder)
        self.store, self.candidate = day.store, day.run
        old = two_days.manifests[OLD].replace(two_days.store.layout.root, str(folder))
        self.manifests = {OLD: old, NEW: day.manifest}
        self.version = version_of(self.store, self.store.layout.run("day1"))
        report = f"{folder}/first.json"
        words = ["--current-set", OLD, "--set", f"{OLD}={old}", "--model"]
        words += [f"candidate={self.version}", "--output", report]
        assert self.evaluate(self.candidate, *words) == 0
        self.keep(EvaluationReport.load(report))

    def evaluate(self, run: RunLayout, *words: str) -> int:
        return evaluate.main(["--store", self.store.layout.root, "--config", run.config, *words])

    def keep(self, report: EvaluationReport) -> None:
        """Make a report the one that the version was promoted by."""
        folder, data = VersionLayout(self.version), report.to_bytes()
        uris.write(folder.evaluation, data)
        model = ModelVersion.load(folder.model)
        files = [file for file in model.files if file.path != "evaluation.json"]
        files.append(FileDigest.of("evaluation.json", data))
        model.model_copy(update={"files": files}).write(folder.model)

    @property
    def kept(self) -> EvaluationReport:
        """Return that report."""
        return EvaluationReport.load(VersionLayout(self.version).evaluation)

    def compare(self, output: str, *words: str, run: RunLayout | None = None) -> int:
        """Score candidate and version on both days, with what the version has."""
        sets = [word for pair in self.manifests.items() for word in ("--set", "=".join(pair))]
        models = ["--model", f"candidate={self.candidate.training.root}"]
        models += ["--model", f"baseline={self.version}", "--earlier", self.version]
        return self.evaluate(
            run or self.candidate,
            *("--current-set", NEW, *sets, *models),
            *("--output", f"{self.store.layout.root}/{output}.json", *words),
        )

    def report(self, output: str) -> EvaluationReport:
        return EvaluationReport.load(f"{self.store.layout.root}/{output}.json")


@pytest.fixture
def lineage(two_days: TwoDays, tmp_path: Path) -> Lineage:
    return Lineage(two_days, tmp_path / "store")


@pytest.fixture
def scored(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the sets on which a model is scored, in order."""
    names: list[str] = []
    score = evaluator._score_set

    def noted(chosen, *others):  # type: ignore[no-untyped-def]
        names.append(chosen.name)
        return score(chosen, *others)

    monkeypatch.setattr(evaluator, "_score_set", noted)
    return names


def test_the_model_in_use_is_scored_on_new_documents_only(
    lineage: Lineage, scored: list[str]
) -> None:
    assert lineage.compare("report") == 0
    assert scored == [OLD, NEW, NEW]
    report = lineage.report("report")
    assert report.samples.keys() == {OLD, NEW}
    assert report.samples[OLD] == lineage.kept.samples[OLD]
    (taken,) = [one for one in report.models[1].sets if one.set_name == OLD]
    assert taken == lineage.kept.models[0].sets[0]

    # Whoever asks for it to be computed again gets that, and it agrees.
    scored.clear()
    assert lineage.compare("report", "--print-only") == 0
    assert scored == [OLD, NEW, OLD, NEW]
    lineage.keep(lineage.kept.model_copy(update={"samples": {}}))
    assert lineage.compare("computed") == 0
    assert max(largest_differences(report, lineage.report("computed"))) == 0


def test_the_documents_of_a_set_stay_the_same(lineage: Lineage) -> None:
    fewer = lineage.store.run("fewer", tiny_config(evaluation__max_records_per_set=7))
    assert lineage.compare("report", run=fewer) == 0
    documents = {
        score.set_name: score.document_ids for score in lineage.report("report").models[0].sets
    }
    assert documents[OLD] == lineage.kept.models[0].sets[0].document_ids
    assert len(documents[NEW]) < len(documents[OLD])


def prepare_anew(lineage: Lineage) -> None:
    manifest = PartitionManifest.load(lineage.manifests[OLD])
    lineage.manifests[OLD] += ".other"
    manifest.model_copy(update={"dropped": {"empty": 1}}).write(lineage.manifests[OLD])


def change_arithmetic(lineage: Lineage) -> None:
    lineage.keep(lineage.kept.model_copy(update={"scored_by": "tpu, bfloat16"}))


def be_of_another_model(lineage: Lineage) -> None:
    (model,) = lineage.kept.models
    other = model.model_copy(update={"files_sha256": "0" * 64})
    lineage.keep(lineage.kept.model_copy(update={"models": [other]}))


def be_older(lineage: Lineage) -> None:
    lineage.keep(lineage.kept.model_copy(update={"samples": {}, "scored_by": ""}))


def have_none(lineage: Lineage) -> None:
    model = ModelVersion.load(VersionLayout(lineage.version).model)
    files = [file for file in model.files if file.path != "evaluation.json"]
    model.model_copy(update={"files": files}).write(VersionLayout(lineage.version).model)


@pytest.mark.parametrize(
    "change", [prepare_anew, change_arithmetic, be_of_another_model, be_older, have_none]
)
def test_scores_of_something_else_are_not_taken(
    lineage: Lineage, scored: list[str], change: Callable[[Lineage], None]
) -> None:
    change(lineage)
    assert lineage.compare("report") == 0
    assert scored == [OLD, NEW, OLD, NEW]
    candidate, baseline = lineage.report("report").models
    for one, other in zip(candidate.sets, baseline.sets, strict=True):
        assert one.document_ids == other.document_ids


def test_a_damaged_evaluation_is_not_trusted(
    lineage: Lineage, capsys: pytest.CaptureFixture[str]
) -> None:
    place = VersionLayout(lineage.version).evaluation
    uris.write(place, uris.read(place).replace(b".", b"9", 1))
    assert lineage.compare("report") == BAD_DATA
    assert "evaluation.json" in capsys.readouterr().out
