"""The probe: a candidate and the model in use on labelled tasks, from the same seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline_store import uris
from pipeline_store.formats import EvaluationReport, PaidVerdict, ProbeReport, TaskSplit
from pipeline_store.layout import RunLayout
from tests.training.corpora import ROBERTA, TinyStore, tiny_config
from tests.training.finetuning.tasks import StopAfter, write_task
from tests.training.jobs import BAD_DATA, PREEMPTED, USER_ERROR, train
from tests.training.versions import version_of
from training import evaluate, probe

TASK = "kind-of-thing"
EXAMPLES = {TaskSplit.TRAIN: 64, TaskSplit.VALIDATION: 20, TaskSplit.TEST: 40}
VERSION = "v-parent"


class World:
    """A model in use, a candidate that was trained from it, and a labelled task."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        steps = {"training__train_steps": 10, "training__checkpoint_interval": 10}
        promotion: dict[str, Any] = {
            "promotion__probe_tasks": [TASK],
            "promotion__probe_random_seeds": [1, 2],
        }
        self.store = TinyStore.create(folder, tiny_config(**steps | promotion | settings))
        self.manifest = manifest = self.store.partition("2026-01-01")
        parent = self.store.run("parent")
        assert train(self.store, parent, manifest) == 0
        self.baseline = version_of(self.store, parent)
        self.run: RunLayout = self.store.run("candidate")
        words = (manifest, "--init-model", self.baseline)
        assert train(self.store, self.run, *words) == 0
        self.task = write_task(self.store, TASK, examples=EXAMPLES)

    def words(self, *, baseline: bool = True, run: RunLayout | None = None) -> list[str]:
        """Return the arguments of the job."""
        words = ["--run", (run or self.run).root, "--store", self.store.layout.root]
        words += ["--candidate", self.run.training.root, "--manifest", self.task]
        return [*words, "--baseline", self.baseline] if baseline else words

    def other(self, name: str, **changes: Any) -> RunLayout:
        """Return a run folder with other settings, to probe the same candidate."""
        settings = self.store.config.model_dump()
        for dotted, value in changes.items():
            section, _, field = dotted.partition("__")
            settings[section][field] = value
        return self.store.run(name, type(self.store.config).model_validate(settings))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return World(tmp_path_factory.mktemp("probe"))


@pytest.fixture(scope="module")
def report(world: World) -> ProbeReport:
    assert probe.main(world.words()) == 0
    return ProbeReport.load(world.run.probe(VERSION))


def test_both_models_are_compared_on_each_task(report: ProbeReport) -> None:
    assert [(one.task, one.model) for one in report.tasks] == [
        (TASK, "candidate"),
        (TASK, "baseline"),
    ]
    for summary in report.tasks:
        assert summary.random_seeds == [1, 2]
        assert set(summary.metrics) >= {"accuracy", "macro_f1"}
        assert 0 < summary.majority["accuracy"] < 1
    [comparison] = report.comparisons
    assert (comparison.reference, comparison.metric) == ("baseline", "accuracy")
    assert (comparison.examples, comparison.seeds) == (40, 2)
    assert comparison.model_mean == pytest.approx(report.tasks[0].metrics["accuracy"].mean)
    assert comparison.reference_mean == pytest.approx(report.tasks[1].metrics["accuracy"].mean)
    assert comparison.low < comparison.difference < comparison.high
    assert comparison.verdict in PaidVerdict
    assert (report.baseline_version, report.mode) == (VERSION, "frozen")


@pytest.mark.thorough
@pytest.mark.parametrize(
    "settings", [{"model__architecture": "distilbert"}, ROBERTA], ids=["distilbert", "roberta"]
)
def test_other_architectures_are_judged_and_probed(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    world = World(tmp_path, **settings)
    assert probe.main(world.words()) == 0
    report = ProbeReport.load(world.run.probe(VERSION))
    assert [one.model for one in report.tasks] == ["candidate", "baseline"]

    output = f"{world.store.layout.root}/report.json"
    words = ["--store", world.store.layout.root, "--config", world.run.config]
    words += ["--current-set", "2026-01-01", "--set", f"2026-01-01={world.manifest}"]
    words += ["--model", f"candidate={world.run.training.root}"]
    words += ["--model", f"baseline={world.baseline}", "--output", output]
    assert evaluate.main(words) == 0
    candidate, baseline = (model.sets[0] for model in EvaluationReport.load(output).models)
    assert candidate.loss < baseline.loss


def test_what_is_done_is_not_done_again(
    world: World, report: ProbeReport, capsys: pytest.CaptureFixture[str]
) -> None:
    assert probe.main(world.words()) == 0
    said = capsys.readouterr().out
    assert "exists and is kept" in said
    assert report.comparisons[0].sentence in said
    # Without the report, its trials are found.
    uris.delete(world.run.probe(VERSION))
    assert probe.main(world.words()) == 0
    assert "Trial kind-of-thing.baseline.0.003.2 is done already" in capsys.readouterr().out
    again = ProbeReport.load(world.run.probe(VERSION))
    assert again.model_copy(update={"created": report.created}) == report


@pytest.mark.thorough
def test_a_first_model_is_recorded_and_compared_with_nothing(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    words = world.words(baseline=False)
    assert probe.main(words) == 0
    found = ProbeReport.load(world.run.probe(None))
    assert [one.model for one in found.tasks] == ["candidate"]
    assert (found.comparisons, found.baseline_version) == ([], None)
    # The trials of one model are not taken for those of another.
    uris.delete(world.run.probe(None))
    capsys.readouterr()
    swapped = [world.baseline if word == world.run.training.root else word for word in words]
    assert "but of another trial: the encoder was " in refused(swapped, capsys)


@pytest.mark.thorough
def test_a_probe_that_is_stopped_goes_on_and_ends_the_same(
    world: World, report: ProbeReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = world.other("stopped")
    for looks in (3, 15):
        with monkeypatch.context() as patch:
            patch.setattr(probe, "StopRequest", lambda looks=looks: StopAfter(looks))
            assert probe.main(world.words(run=run)) == PREEMPTED
        assert not uris.exists(run.probe(VERSION))
    assert probe.main(world.words(run=run)) == 0
    found = ProbeReport.load(run.probe(VERSION))
    assert found.model_copy(update={"created": report.created}) == report


@pytest.mark.thorough
def test_a_full_probe_trains_the_encoder_too(world: World) -> None:
    run = world.other("full", promotion__probe_mode="full", promotion__probe_random_seeds=[3])
    assert probe.main(world.words(run=run, baseline=False)) == 0
    found = ProbeReport.load(run.probe(None))
    assert found.mode == "full"
    assert found.tasks[0].learning_rate == pytest.approx(3e-5)


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert probe.main(words) in {USER_ERROR, BAD_DATA}
    return capsys.readouterr().out


def test_what_does_not_fit_is_refused(
    world: World, report: ProbeReport, capsys: pytest.CaptureFixture[str]
) -> None:
    other = world.other("tasks", promotion__probe_tasks=["another"])
    said = refused(world.words(run=other), capsys)
    assert "of the tasks ['kind-of-thing'], but promotion.probe_tasks is ['another']" in said

    changed = world.other("candidate2", promotion__probe_random_seeds=[7])
    uris.write(changed.probe(VERSION), report.to_bytes())
    said = refused(world.words(run=changed), capsys)
    assert "promotion.probe_random_seeds is [1, 2] in the report and [7] now" in said

    untested = world.other("untested", promotion__probe_tasks=["untested"])
    manifest = write_task(
        world.store, "untested", examples={TaskSplit.TRAIN: 8, TaskSplit.VALIDATION: 8}
    )
    words = [manifest if word == world.task else word for word in world.words(run=untested)]
    assert "untested has no test examples" in refused(words, capsys)
