"""Labelled tasks in the promotion gate: how they are prepared, probed and judged."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from operators.probe import ProbeDataOperator, TpuProbeOperator
from operators.promotion import JudgeOperator
from operators.tpu import TpuReserveOperator
from operators.tpu_failures import FailureKind, TpuTaskFailed
from pipeline_config import PipelineConfig, with_overrides
from pipeline_store import uris
from pipeline_store.formats import (
    EvaluationReport,
    ModelScore,
    OutcomeKind,
    ProbeReport,
    RunOutcome,
    RunRecord,
    TaskManifest,
    TaskSplit,
    Verdict,
)
from pipeline_store.layout import RunLayout
from tests.model_registry.test_gate import Documents
from tests.plugins.driver import CONN_ID, Driver, connect
from tests.tpu_lifecycle.world import World
from tests.training.corpora import TinyStore, tiny_config
from tests.training.finetuning.tasks import write_task
from tests.training.jobs import train
from tests.training.versions import version_of
from training import probe
from training.artifacts import model_files

TASK = "kind-of-thing"
DAY, NEXT_DAY = "2026-01-01", "2026-01-02"
STEPS = {
    "training__train_steps": 150,
    "training__checkpoint_interval": 150,
    "training__steps_per_loop": 50,
    "training__global_batch_size": 16,
    "promotion__probe_tasks": [TASK],
    "promotion__probe_random_seeds": [1, 2, 3],
}
EXAMPLES = {TaskSplit.TRAIN: 300, TaskSplit.VALIDATION: 60, TaskSplit.TEST: 200}


class Lineage:
    """A model in use and candidates that continue it, all really trained."""

    def __init__(self, folder: Path) -> None:
        self.store = TinyStore.create(folder, tiny_config(**STEPS))
        parent = self.store.run("0123456789ab")
        assert train(self.store, parent, self.store.partition(DAY, documents=60)) == 0
        self.baseline = version_of(self.store, parent)
        self.version = self.baseline.rpartition("/")[2]
        self.next_day = self.store.partition(NEXT_DAY, documents=60)
        self.task = write_task(self.store, TASK, examples=EXAMPLES)

    def candidate(self, key: str, **changes: Any) -> RunLayout:
        """Train a candidate; whatever it is, the evaluation says that its loss is better."""
        config = tiny_config(**STEPS | {"training__train_steps": 50} | changes)
        run = self.store.run(key, config)
        assert train(self.store, run, self.next_day, "--init-model", self.baseline) == 0
        RunRecord(
            run_key=key,
            dag_id="dag",
            run_id=key,
            partition=NEXT_DAY,
            lineage_id=config.model.lineage_id,
            config_sha256=config.sha256,
            created=datetime(2026, 1, 31, tzinfo=UTC),
        ).write(run.record)
        documents = Documents(NEXT_DAY)
        EvaluationReport(
            partition=NEXT_DAY,
            current_set=NEXT_DAY,
            evaluated={NEXT_DAY: "0" * 64},
            models=[
                ModelScore(
                    name=name,
                    model_uri=uri,
                    files_sha256=model_files(uri).sha256,
                    sets=[documents.score(shift)],
                )
                for name, uri, shift in (
                    ("candidate", run.training.root, -0.2),
                    ("baseline", self.baseline, 0.0),
                )
            ],
            unigram_losses={NEXT_DAY: 6.5},
        ).write(run.evaluation(self.version))
        return run

    def probe(self, run: RunLayout) -> ProbeReport:
        """Do what the job on the TPU does."""
        words = ["--run", run.root, "--store", self.store.layout.root, "--manifest", self.task]
        words += ["--candidate", run.training.root, "--baseline", self.baseline]
        assert probe.main(words) == 0
        return ProbeReport.load(run.probe(self.version))

    def judge(self, run: RunLayout) -> str:
        operator = JudgeOperator(task_id="judge", run_uri=run.root, baseline=self.version)
        return operator.execute({})


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    return Lineage(tmp_path_factory.mktemp("lineage"))


def test_a_candidate_that_is_sound_is_promoted(lineage: Lineage) -> None:
    run = lineage.candidate("aaaaaaaaaaaa")
    [found] = lineage.probe(run).comparisons
    # Both have learned something that says what a text is about.
    assert found.reference_mean > 0.5
    assert lineage.judge(run) == "promoted"
    assert not uris.exists(run.outcome)


def test_a_damaged_candidate_is_rejected_though_its_loss_is_better(lineage: Lineage) -> None:
    # As if a learning rate had been mistyped, and the evaluation had not noticed.
    run = lineage.candidate("bbbbbbbbbbbb", optimizer__learning_rate=1.0)
    # Without the probe's report nobody is promoted.
    with pytest.raises(FileNotFoundError, match="probes"):
        lineage.judge(run)
    [found] = lineage.probe(run).comparisons
    assert found.high < -0.01
    assert lineage.judge(run) == "rejected: downstream"
    outcome = RunOutcome.load(run.outcome)
    assert (outcome.outcome, outcome.written_by) == (OutcomeKind.REJECTED, "judge")
    assert found.sentence in outcome.reason
    assert [one.task for one in Verdict.load(run.verdict(lineage.version)).probes] == [TASK]


# --- preparing the tasks


def write_config(folder: Path, *tasks: str) -> str:
    config = with_overrides(PipelineConfig(), {"promotion.probe_tasks": list(tasks)})
    path = folder / "config.json"
    path.write_bytes(config.to_bytes())
    return str(path)


def prepare(store: TinyStore, config_uri: str) -> dict[str, Any]:
    operator = ProbeDataOperator(
        task_id="probe_data", store_uri=store.layout.root, config_uri=config_uri
    )
    return operator.execute({})


DATAFLOW = {
    "beam.runner": "DataflowRunner",
    "beam.region": "us-central1",
    "beam.temp_location": "gs://bucket/temp",
    "beam.sdk_container_image": f"image@sha256:{'0' * 64}",
}


def describe(folder: Path, name: str, *, examples: int) -> None:
    """Write a task, a tenth of whose examples are for its test."""
    task = folder / "tasks" / name
    task.mkdir(parents=True)
    rows = [
        {"text": f"w{number % 100 + 5} w{number + 50}", "label": f"{name} {number % 2}"}
        for number in range(examples)
    ]
    (task / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (task / "task.toml").write_text("max_label_in_text = 1\n")


def test_without_labelled_tasks_nothing_is_prepared(tmp_path: Path) -> None:
    store = TinyStore.create(tmp_path)
    with pytest.raises(AirflowSkipException, match="judged by its loss alone"):
        prepare(store, write_config(tmp_path))


def test_each_labelled_task_is_prepared(tmp_path: Path) -> None:
    store = TinyStore.create(tmp_path)
    for name in ("things", "moods"):
        describe(tmp_path, name, examples=400)
    summary = prepare(store, write_config(tmp_path, "things", "moods"))
    manifests = [TaskManifest.load(uri) for uri in summary["manifests"]]
    assert [one.name for one in manifests] == ["things", "moods"]
    assert TaskSplit.TEST in manifests[0].splits


def test_a_task_that_is_not_there_fails_before_a_tpu_is_rented(tmp_path: Path) -> None:
    store = TinyStore.create(tmp_path)
    with pytest.raises(AirflowFailException, match="nowhere"):
        prepare(store, write_config(tmp_path, "nowhere"))


def test_a_task_with_too_few_examples_fails_before_a_tpu_is_rented(tmp_path: Path) -> None:
    store = TinyStore.create(tmp_path)
    describe(tmp_path, "small", examples=120)
    with pytest.raises(AirflowFailException, match=r"'small' has \d+ test examples; with fewer"):
        prepare(store, write_config(tmp_path, "small"))


def test_on_dataflow_a_task_is_prepared_in_the_connections_project(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(world, monkeypatch)
    config = with_overrides(PipelineConfig(), DATAFLOW)
    path = tmp_path / "config.json"
    path.write_bytes(config.to_bytes())
    operator = ProbeDataOperator(
        task_id="probe_data",
        store_uri=str(tmp_path),
        config_uri=str(path),
        gcp_conn_id=CONN_ID,
    )
    operator.arguments = ["--task", "things"]
    context: Any = {"dag_run": SimpleNamespace(dag_id="bert_repretraining", run_id="manual__1")}
    words = operator.command_line(context)
    assert words[:3] == ["--task", "things", "--label"]
    assert words[-1] == f"--project={world.emulator.project}"


@pytest.mark.parametrize("manifests", [None, []])
def test_without_prepared_tasks_no_tpu_is_asked_for(driver: Driver, manifests: Any) -> None:
    TpuReserveOperator(task_id="reserve", code_root=str(driver.source), **driver.arguments).execute(
        driver.context()
    )
    operator = TpuProbeOperator(
        task_id="probe", job_id="030-probe", arguments=[], manifests=manifests, **driver.arguments
    )
    with pytest.raises(TpuTaskFailed, match=r"user-error.*marked as success by hand") as failed:
        operator.execute(driver.context())
    assert failed.value.kind is FailureKind.USER_ERROR
    assert driver.reservation.attempts() == []


def test_the_job_gets_a_manifest_for_each_task() -> None:
    operator = TpuProbeOperator(
        task_id="probe",
        job_id="030-probe",
        store_uri="/store",
        run_uri="/store/runs/k",
        arguments=["--run", "/store/runs/k"],
        manifests=["/store/one", "/store/two"],
    )
    manifests = ["--manifest", "/store/one", "--manifest", "/store/two"]
    # Asked again for each TPU that takes a lost one's place.
    for _ in range(2):
        assert operator.job_arguments() == ["--run", "/store/runs/k", *manifests]
    assert operator.entry_point == "training.probe"
    assert "manifests" in operator.template_fields
