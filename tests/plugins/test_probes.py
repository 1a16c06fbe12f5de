"""Labelled tasks in the promotion gate: how they are prepared, probed and judged."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from operators import python_module
from operators.probe import ProbeDataOperator, TpuProbeOperator
from operators.promotion import JudgeOperator
from operators.tpu import TpuReserveOperator
from operators.tpu_failures import TpuTaskFailed
from pipeline_config import PipelineConfig, with_overrides
from pipeline_config.task import MIN_JUDGED_EXAMPLES
from pipeline_store import identity, uris
from pipeline_store.formats import (
    BestScores,
    EvaluationReport,
    FileDigest,
    ModelScore,
    OutcomeKind,
    PreparedInput,
    ProbeReport,
    RunOutcome,
    RunPlan,
    RunRecord,
    TaskManifest,
    TaskRecords,
    TaskSplit,
    Verdict,
)
from pipeline_store.layout import RunLayout, StoreLayout, VersionLayout
from tests.model_registry.runs import write_training
from tests.model_registry.test_gate import VERSION, Documents
from tests.model_registry.test_gate_probes import CANDIDATE, comparison
from tests.model_registry.test_gate_probes import probe as report
from tests.plugins.contexts import context_of
from tests.plugins.driver import CONN_ID, Driver, connect
from tests.tpu_lifecycle.world import World
from tests.training.corpora import TinyStore, tiny_config
from tests.training.finetuning.tasks import write_task
from tests.training.jobs import train
from tests.training.versions import version_of
from trained_models.artifacts import model_files
from training import probe

TASK = "kind-of-thing"
PROBED = "probed"
KEY = identity.run_key("dag", PROBED)
BASELINE = f"/store/lineages/l/versions/{VERSION}"
DAY, NEXT_DAY = "2026-01-01", "2026-01-02"
NOW = datetime(2026, 1, 31, tzinfo=UTC)
STEPS = {
    "training__train_steps": 150,
    "training__checkpoint_interval": 150,
    "training__steps_per_loop": 50,
    "training__global_batch_size": 16,
    "promotion__probe_tasks": [TASK],
    "promotion__probe_random_seeds": [1, 2, 3],
}
EXAMPLES = {TaskSplit.TRAIN: 300, TaskSplit.VALIDATION: 60, TaskSplit.TEST: 200}


def write_run(
    run: RunLayout, config: PipelineConfig, *, version: str = VERSION, run_id: str = PROBED
) -> None:
    """Write a run that is to be judged against a version."""
    uris.write(run.config, config.to_bytes())
    RunRecord(
        run_key=identity.run_key("dag", run_id),
        dag_id="dag",
        run_id=run_id,
        partition=NEXT_DAY,
        lineage_id=config.model.lineage_id,
        config_sha256=config.sha256,
        created=NOW,
    ).write(run.record)
    RunPlan(
        partition=NEXT_DAY,
        parent_version=version,
        trained={},
        replayed={},
        not_replayed={},
        evaluated={},
        lease_sequence=1,
        created=NOW,
    ).write(run.plan)


def write_evaluation(run: RunLayout, version: str, models: dict[str, tuple[str, str]]) -> None:
    """Say that the candidate's loss is better than that of the model in use, whatever it is.

    That model has been best on nothing else.

    :param models: URI and SHA-256 of the files, by name.
    """
    lineage = StoreLayout(run.root.rpartition("/runs/")[0]).lineage("default")
    BestScores(sets={}).write(VersionLayout(lineage.version(version)).best_scores)
    documents = Documents(NEXT_DAY)
    shifts = {"candidate": -0.2, "baseline": 0.0}
    EvaluationReport(
        partition=NEXT_DAY,
        current_set=NEXT_DAY,
        evaluated={NEXT_DAY: "0" * 64},
        models=[
            ModelScore(
                name=name,
                model_uri=uri,
                files_sha256=sha256,
                sets=[documents.score(shifts[name])],
            )
            for name, (uri, sha256) in models.items()
        ],
        unigram_losses={NEXT_DAY: 6.5},
    ).write(run.evaluation(version))


def judge(run: RunLayout) -> str:
    operator = JudgeOperator(task_id="judge", store_uri=run.root.rpartition("/runs/")[0])
    return operator.execute(context_of("dag", RunRecord.load(run.record).run_id))


# --- judging by a report, as if the job had written it


@pytest.fixture
def run(tmp_path: Path) -> RunLayout:
    """A run whose evaluation says that its candidate is better."""
    run = StoreLayout(str(tmp_path)).run(KEY)
    write_run(run, with_overrides(PipelineConfig(), {"promotion.probe_tasks": [TASK]}))
    write_training(run, KEY)
    models = {"candidate": (run.training.root, CANDIDATE), "baseline": (BASELINE, "2" * 64)}
    write_evaluation(run, VERSION, models)
    return run


@pytest.mark.parametrize("difference", [0.05, 0.0, -0.025])
def test_a_candidate_that_loses_nothing_for_sure_is_promoted(
    run: RunLayout, difference: float
) -> None:
    report(comparison(TASK, difference)).write(run.probe(VERSION))
    assert judge(run) == "promoted"
    assert [one.task for one in Verdict.load(run.verdict(VERSION)).probes] == [TASK]
    assert not uris.exists(run.outcome)


def test_a_candidate_that_loses_a_task_is_rejected_though_its_loss_is_better(
    run: RunLayout,
) -> None:
    lost = comparison(TASK, -0.2)
    report(lost).write(run.probe(VERSION))
    assert judge(run) == "rejected: downstream"
    outcome = RunOutcome.load(run.outcome)
    assert (outcome.outcome, outcome.written_by) == (OutcomeKind.REJECTED, "judge")
    assert lost.sentence in outcome.reason
    assert [one.task for one in Verdict.load(run.verdict(VERSION)).probes] == [TASK]


def test_without_the_probes_report_nobody_is_promoted(run: RunLayout) -> None:
    with pytest.raises(FileNotFoundError, match="probes"):
        judge(run)
    assert not uris.exists(run.verdict(VERSION))
    assert not uris.exists(run.outcome)


def test_without_labelled_tasks_no_report_is_asked_for(run: RunLayout) -> None:
    write_run(run, PipelineConfig())
    assert judge(run) == "promoted"
    assert Verdict.load(run.verdict(VERSION)).probes == []


# --- judging by what the job finds in models that were trained


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

    def candidate(self, name: str, **changes: Any) -> RunLayout:
        """Train a candidate; whatever it is, the evaluation says that its loss is better."""
        config = tiny_config(**STEPS | {"training__train_steps": 50} | changes)
        run = self.store.run(identity.run_key("dag", name), config)
        assert train(self.store, run, self.next_day, "--init-model", self.baseline) == 0
        write_run(run, config, version=self.version, run_id=name)
        models = {"candidate": run.training.root, "baseline": self.baseline}
        sha256 = {name: (uri, model_files(uri).sha256) for name, uri in models.items()}
        write_evaluation(run, self.version, sha256)
        return run

    def probe(self, run: RunLayout) -> ProbeReport:
        """Do what the job on the TPU does."""
        words = ["--run", run.root, "--store", self.store.layout.root, "--manifest", self.task]
        words += ["--candidate", run.training.root, "--baseline", self.baseline]
        assert probe.main(words) == 0
        return ProbeReport.load(run.probe(self.version))


@pytest.fixture(scope="module")
def lineage(tmp_path_factory: pytest.TempPathFactory) -> Lineage:
    return Lineage(tmp_path_factory.mktemp("lineage"))


@pytest.mark.thorough
def test_a_candidate_that_is_sound_is_promoted(lineage: Lineage) -> None:
    run = lineage.candidate("sound")
    [found] = lineage.probe(run).comparisons
    # Both have learned something that says what a text is about.
    assert found.reference_mean > 0.5
    assert judge(run) == "promoted"
    assert not uris.exists(run.outcome)


@pytest.mark.thorough
def test_a_damaged_candidate_is_rejected_though_its_loss_is_better(lineage: Lineage) -> None:
    # As if a learning rate had been mistyped, and the evaluation had not noticed.
    run = lineage.candidate("damaged", optimizer__learning_rate=1.0)
    [found] = lineage.probe(run).comparisons
    assert found.high < -0.01
    assert judge(run) == "rejected: downstream"
    assert found.sentence in RunOutcome.load(run.outcome).reason


# --- preparing the tasks


def prepare(folder: Path, *tasks: str) -> dict[str, Any]:
    config = with_overrides(PipelineConfig(), {"promotion.probe_tasks": list(tasks)})
    write_run(StoreLayout(str(folder)).run(KEY), config)
    operator = ProbeDataOperator(task_id="probe_data", store_uri=str(folder))
    return operator.execute(context_of("dag", PROBED))


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


# In the place of beam_jobs.prepare_task: keeps its command line, names what was prepared before.
PREPARED = """
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
with open(options["--store"] + "/calls", "a") as calls:
    print(json.dumps(options), file=calls)
print(json.dumps({"manifest": options["--store"] + "/" + options["--task"] + ".json"}))
"""


def write_manifest(folder: Path, name: str, *, test: int) -> None:
    """Write the manifest of a task with so many examples for its test."""
    digest = FileDigest(path="x", bytes=0, sha256="0" * 64)
    records = TaskRecords(
        data=digest, index=digest, sources=digest, records=test, labels={}, truncated=0, tokens=0
    )
    TaskManifest(
        name=name,
        key="k1",
        task={},
        task_kind="classification",
        compared_by="accuracy",
        labels=["a", "b"],
        vocabulary_sha256="0" * 64,
        max_seq_length=16,
        inputs={},
        splits={TaskSplit.TEST: records},
        dropped={},
        dead_letter=None,
        warnings=[],
    ).write(str(folder / f"{name}.json"))


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a store in which all tasks are prepared that the job is asked for."""
    monkeypatch.setattr(python_module, "REPOSITORY", str(tmp_path))
    (tmp_path / "beam_jobs").mkdir()
    (tmp_path / "beam_jobs/prepare_task.py").write_text(PREPARED)
    return tmp_path


def test_the_job_is_asked_for_each_labelled_task(played: Path) -> None:
    for name in ("things", "moods"):
        write_manifest(played, name, test=MIN_JUDGED_EXAMPLES)
    summary = prepare(played, "things", "moods")
    assert summary == {"manifests": [f"{played}/things.json", f"{played}/moods.json"]}
    calls = [json.loads(line) for line in (played / "calls").read_text().splitlines()]
    common = {"--config": f"{played}/runs/{KEY}/config.json", "--store": str(played)}
    assert calls == [common | {"--task": "things"}, common | {"--task": "moods"}]


def test_each_task_with_too_few_examples_is_named(played: Path) -> None:
    for name, examples in (("small", 12), ("things", 400), ("tiny", 3)):
        write_manifest(played, name, test=examples)
    with pytest.raises(AirflowFailException) as failed:
        prepare(played, "small", "things", "tiny")
    assert "'small' has 12 test examples; with fewer" in str(failed.value)
    assert "'tiny' has 3 test examples" in str(failed.value)
    assert "things" not in str(failed.value)


def test_without_labelled_tasks_nothing_is_prepared(played: Path) -> None:
    with pytest.raises(AirflowSkipException, match="judged by its loss alone"):
        prepare(played)
    assert not (played / "calls").exists()


@pytest.mark.thorough
def test_each_labelled_task_is_prepared(tmp_path: Path) -> None:
    TinyStore.create(tmp_path)
    for name in ("things", "moods"):
        describe(tmp_path, name, examples=400)
    summary = prepare(tmp_path, "things", "moods")
    manifests = [TaskManifest.load(uri) for uri in summary["manifests"]]
    assert [one.name for one in manifests] == ["things", "moods"]
    assert TaskSplit.TEST in manifests[0].splits


@pytest.mark.thorough
def test_a_task_that_is_not_there_fails_before_a_tpu_is_rented(tmp_path: Path) -> None:
    TinyStore.create(tmp_path)
    with pytest.raises(AirflowFailException, match="nowhere"):
        prepare(tmp_path, "nowhere")


@pytest.mark.thorough
def test_a_task_with_too_few_examples_fails_before_a_tpu_is_rented(tmp_path: Path) -> None:
    TinyStore.create(tmp_path)
    describe(tmp_path, "small", examples=120)
    with pytest.raises(AirflowFailException, match=r"'small' has \d+ test examples; with fewer"):
        prepare(tmp_path, "small")


def test_on_dataflow_a_task_is_prepared_in_the_connections_project(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    connect(world, monkeypatch)
    write_run(StoreLayout(str(tmp_path)).run(KEY), with_overrides(PipelineConfig(), DATAFLOW))
    operator = ProbeDataOperator(task_id="probe_data", store_uri=str(tmp_path), gcp_conn_id=CONN_ID)
    operator.arguments = ["--task", "things"]
    words = operator.command_line(context_of("dag", PROBED))
    assert words[:3] == ["--task", "things", "--label"]
    assert words[-1] == f"--project={world.emulator.project}"


@pytest.mark.parametrize(
    ("tasks", "expected", "kind"),
    [
        ([], "user-error.*marked as success by hand", TpuTaskFailed),
        ([TASK], "probe_data has prepared nothing .*marked as success", AirflowFailException),
    ],
)
def test_without_prepared_tasks_no_tpu_is_asked_for(
    driver: Driver, tasks: list[str], expected: str, kind: type[Exception]
) -> None:
    driver.configure({"promotion.probe_tasks": tasks})
    TpuReserveOperator(task_id="reserve", code_root=str(driver.source), **driver.arguments).execute(
        driver.context()
    )
    operator = TpuProbeOperator(task_id="probe", job_id="030-probe", **driver.arguments)
    with pytest.raises(kind, match=expected):
        operator.execute(driver.context())
    assert driver.reservation.attempts() == []


def test_the_job_gets_a_manifest_for_each_task(run: RunLayout) -> None:
    tasks = ["one", "two"]
    write_run(run, with_overrides(PipelineConfig(), {"promotion.probe_tasks": tasks}))
    for task in tasks:
        PreparedInput(manifest=f"/store/{task}").write(run.prepared_task(task))
    store = run.root.rpartition("/runs/")[0]
    operator = TpuProbeOperator(task_id="probe", job_id="030-probe", store_uri=store)
    words = ["--run", run.root, "--store", store, "--candidate", run.training.root]
    words += ["--baseline", f"{store}/lineages/default/versions/{VERSION}"]
    manifests = ["--manifest", "/store/one", "--manifest", "/store/two"]
    # Asked again for each TPU that takes a lost one's place.
    for _ in range(2):
        assert operator.job_arguments(context_of("dag", PROBED)) == [*words, *manifests]
    assert operator.entry_point == "training.probe"
