"""What a fine-tuning run came to: the report, and the page that is made from it."""

from __future__ import annotations

from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from pipeline_store import uris
from pipeline_store.formats import (
    EncoderSource,
    FinetuningPlan,
    FinetuningReport,
    ModelVersion,
    PaidVerdict,
    RunRecord,
    TaskManifest,
    TaskOverlap,
    TaskSplit,
    TrainingTextFindings,
)
from pipeline_store.layout import RunLayout, StoreLayout
from tests.golden.more_files import full
from tests.trained_models.downstream.written import guesses, task_manifest, write_trial
from trained_models.downstream.page import PICTURED_LABELS, render
from trained_models.downstream.report import write_report
from trained_models.downstream.trials import FinishedTrial
from trained_models.errors import UserError

KEY = "0123456789ab"
TEST = np.arange(300) % 3
MODELS = {
    "model": EncoderSource(uri="versions/v-2", version_id="v-222222222222"),
    "previous": EncoderSource(uri="versions/v-1", version_id="v-111111111111"),
    "start": EncoderSource(uri=None, version_id=None),
}
# Share of right answers, by task and model.
SKILL = {
    "things": {"model": 0.9, "previous": 0.6, "start": 0.34},
    "moods": {"model": 0.7, "previous": 0.7, "start": 0.9},
}


class Run:
    """A fine-tuning run whose trials are done."""

    def __init__(self, folder: Path, *, seeds: int = 3, warnings: tuple[str, ...] = ()) -> None:
        self.store = StoreLayout(str(folder))
        self.run: RunLayout = self.store.run(KEY)
        self.manifests = {name: task_manifest(name, warnings=warnings) for name in SKILL}
        for name, manifest in self.manifests.items():
            manifest.write(self.store.task(name).manifest("k1"))
        self.trials = [
            self._trial(manifest, model, right, seed)
            for name, manifest in self.manifests.items()
            for model, right in SKILL[name].items()
            for seed in range(1, seeds + 1)
        ]
        RunRecord(
            run_key=KEY,
            dag_id="bert_finetuning",
            run_id="manual__1",
            partition="",
            lineage_id="default",
            config_sha256="c",
            created=datetime(2026, 1, 31, tzinfo=UTC),
        ).write(self.run.record)
        FinetuningPlan(
            lineage_id="default",
            models=MODELS,
            manifests={name: f"tasks/{name}/prepared/k1/manifest.json" for name in SKILL},
            trials=[one.result.trial for one in self.trials],
            created=datetime(2026, 1, 31, tzinfo=UTC),
        ).write(self.run.finetuning_plan)

    def _trial(self, manifest: TaskManifest, model: str, right: float, seed: int) -> FinishedTrial:
        splits = {
            split: guesses(TEST, right, 100 * seed + len(model + split))
            for split in (TaskSplit.VALIDATION, TaskSplit.TEST)
        }
        return write_trial(self.run.trials, manifest, splits, model=model, seed=seed)

    def report(self) -> FinetuningReport:
        return write_report(self.store, self.run)

    def page(self) -> str:
        return uris.read(self.run.training_page).decode()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_the_model_is_compared_with_each_other_one_on_each_task(run: Run) -> None:
    report = run.report()
    assert report == FinetuningReport.load(run.run.training_summary)
    assert report.run_key == KEY
    assert [(one.task, one.model) for one in report.tasks] == [
        (task, model) for task in SKILL for model in MODELS
    ]
    verdicts = {(one.task, one.reference): one.verdict for one in report.comparisons}
    assert verdicts == {
        ("things", "previous"): PaidVerdict.HELPED,
        ("things", "start"): PaidVerdict.HELPED,
        ("moods", "previous"): PaidVerdict.NO_EVIDENCE,
        ("moods", "start"): PaidVerdict.HURT,
    }


def test_done_again_it_is_the_same(run: Run) -> None:
    report, page = run.report(), run.page()
    uris.delete(run.run.training_page)
    assert run.report() == report
    assert run.page() == page


def test_a_trial_that_is_not_done_is_named(run: Run) -> None:
    uris.delete(run.trials[4].place.result)
    missing = run.trials[4].result.trial.trial_id
    with pytest.raises(UserError, match=f"1 of 18 trials .* no result, such as {missing}"):
        run.report()
    assert not uris.exists(run.run.training_summary)


class Links(HTMLParser):
    """Collects what a page would load from elsewhere, and checks that its tags are closed."""

    VOID = frozenset({"meta", "br", "img", "input", "hr"})

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in {"script", "link", "img", "iframe"}:
            self.loaded.append(tag)
        self.loaded += [value for name, value in attrs if name in {"src", "href"} and value]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_shows_numbers_and_sentences_and_loads_nothing(run: Run) -> None:
    report, page = run.report(), run.page()
    links = Links()
    links.feed(page)
    assert (links.loaded, links.open) == ([], [])
    for comparison in report.comparisons:
        assert comparison.sentence in page
        assert f"{comparison.difference:+.4f}" in page
    for summary in report.tasks:
        found = summary.metrics["accuracy"]
        assert f"{found.mean:.4f} ± {found.deviation:.4f}" in page
        assert summary.best_trial in page
    # A table by label and a confusion picture for each model on each task.
    assert page.count("<th>label</th>") == page.count('aria-label="Confusion matrix') == 6
    best = next(one for one in run.trials if one.result.trial.trial_id.startswith("things.start"))
    assert best.result.scores[TaskSplit.TEST].confusion
    assert "animal taken for mineral: " in page
    for version in ("v-222222222222", "v-111111111111", "random weights"):
        assert version in page


def test_the_page_shows_what_the_data_job_warned_of(tmp_path: Path) -> None:
    run = Run(tmp_path, seeds=1, warnings=("label <b>animal</b> is rare",))
    run.report()
    assert "label &lt;b&gt;animal&lt;/b&gt; is rare" in run.page()


def partly(unknown: list[str], exact: int = 0) -> TrainingTextFindings:
    return TrainingTextFindings(
        exact=exact,
        near=0,
        partitions=["day-1", "day-2"],
        unknown=unknown,
        near_unknown=[],
        verdict=PaidVerdict.HELPED,
        clean=None,
    )


@pytest.mark.parametrize(
    ("findings", "shown"),
    [
        (None, "not known"),
        (partly([]).model_copy(update={"partitions": None}), "not known"),
        (partly(["day-1", "day-2"]), "not known"),
        (partly(["day-2"]), "partly not known"),
        (partly(["day-2"], 3), "at least 3 of 300"),
        (partly([], 3), "3 of 300"),
        (partly([]), "0 of 300"),
    ],
)
def test_the_page_counts_test_examples_in_the_training_text(
    run: Run, findings: TrainingTextFindings | None, shown: str
) -> None:
    report = run.report()
    compared = report.comparisons[0].model_copy(update={"training_text": findings})
    results = {one.result.trial.trial_id: one.result for one in run.trials}
    page = render(report.model_copy(update={"comparisons": [compared]}), run.manifests, results)
    assert f'<td class="n">{shown}</td>' in page


def test_the_report_has_what_was_noted_of_the_models_text(run: Run) -> None:
    lineage = run.store.lineage("default")
    source = MODELS["model"]
    version = full(ModelVersion, partitions_seen=["day-1"])
    version.write(uris.join(run.store.resolve(str(source.uri)), "model.json"))
    task = run.store.task("things")
    uris.write(lineage.manifest("day-1", "m1"), b"{}")
    overlap = full(TaskOverlap, examples=300, exact=[*range(280)], near=[281])
    overlap.write(task.overlap("k1", "default", "day-1", "m1"))
    found = {one.task: one for one in run.report().comparisons if one.reference == "previous"}
    things, moods = found["things"], found["moods"]
    assert "281 of the 300 test examples were found in the training text" in things.sentence
    assert things.verdict is PaidVerdict.NO_EVIDENCE
    assert '<td class="n">281 of 300</td>' in run.page()
    # Nothing was noted of the other task.
    assert "Whether test examples lie in partition day-1 is not known" in moods.sentence


def test_a_model_at_the_level_of_the_majority_is_called_so(run: Run) -> None:
    report = run.report()
    [first, *rest] = report.tasks
    level = first.metrics["accuracy"].model_copy(update={"mean": first.majority["accuracy"]})
    lazy = first.model_copy(update={"metrics": first.metrics | {"accuracy": level}})
    results = {one.result.trial.trial_id: one.result for one in run.trials}
    page = render(report.model_copy(update={"tasks": [lazy, *rest]}), run.manifests, results)
    assert "model is not better than always giving the most frequent answer" in page
    plain = render(report, run.manifests, results)
    assert "model is not better than always giving the most frequent answer" not in plain


def test_without_another_model_nothing_is_claimed(run: Run) -> None:
    report = run.report()
    results = {one.result.trial.trial_id: one.result for one in run.trials}
    page = render(report.model_copy(update={"comparisons": []}), run.manifests, results)
    assert "Not asked: the run fine-tuned one model" in page


def test_many_labels_get_a_list_of_mistakes_instead_of_a_picture(tmp_path: Path) -> None:
    count = PICTURED_LABELS + 1
    names = [f"label {number}" for number in range(count)]
    manifest = task_manifest("many", labels=names, train=dict.fromkeys(names, 3))
    labels = np.arange(10 * count) % count
    splits = {
        split: guesses(labels, 0.5, 1, count) for split in (TaskSplit.VALIDATION, TaskSplit.TEST)
    }
    store = StoreLayout(str(tmp_path))
    run = store.run(KEY)
    one = write_trial(run.trials, manifest, splits)
    source = Run(tmp_path / "other")
    source.report()
    manifest.write(store.task("many").manifest("k1"))
    RunRecord.load(source.run.record).write(run.record)
    FinetuningPlan(
        lineage_id="default",
        models={"model": MODELS["model"]},
        manifests={"many": "tasks/many/prepared/k1/manifest.json"},
        trials=[one.result.trial],
        created=datetime(2026, 1, 31, tzinfo=UTC),
    ).write(run.finetuning_plan)
    write_report(store, run)
    page = uris.read(run.training_page).decode()
    assert "<th>taken for</th>" in page
    assert "Confusion matrix" not in page
