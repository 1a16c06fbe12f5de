"""The tasks of a fine-tuning run that need no TPU, and what starts one, in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

from hooks.notes import ENDED_BY, FIRST_TASK, NOTE
from model_registry import outcomes, registry
from operators import classifiers, run_end
from operators.classifiers import (
    CompressClassifiersOperator,
    ExportClassifiersOperator,
    PredictOperator,
)
from operators.failures import RunHasFailed
from operators.finetuning import (
    PlanFinetuningOperator,
    PrepareTaskOperator,
    ReportFinetuningOperator,
    ValidateFinetuningOperator,
)
from operators.pipeline_assets import model_key
from operators.promoted_models import ReceiveModelOperator
from operators.python_module import PythonModuleOperator
from operators.run_end import EndRunOperator
from operators.tpu import TpuReserveOperator
from pipeline_alerts.delivery import list_alerts
from pipeline_config import load_finetuning_preset, parse_finetuning_config, with_overrides
from pipeline_config.settings import load_settings
from pipeline_store import identity, request_paths, uris
from pipeline_store.formats import (
    Alert,
    FinetuningPlan,
    FinetuningReport,
    OutcomeKind,
    PreparedInput,
    RunEstimate,
    RunOutcome,
    RunRecord,
    TaskSummary,
    Trial,
)
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.request import request_roots
from preflight.run import finetuning
from tests.model_registry.finetunings import write_manifest, write_trained
from tests.model_registry.runs import NOW, FinishedRun
from tests.plugins.driver import CONN_ID, connect
from tests.tpu_lifecycle.world import World
from tpu_lifecycle.records.trainings import rental_folders, trainings

DAG_ID = "bert_finetuning"
TASK = "weather"
LINES = "text\tlabel\n" + "".join(f"a day of {word}\t{word}\n" for word in ("sun", "rain") * 20)


def promoted(store: str, name: str, parent: str | None = None) -> FinishedRun:
    run = FinishedRun(store, name, parent=parent)
    registry.publish(run.store, run.run)
    registry.promote(run.lineage, run.version_id, expected_baseline=parent, reason="better")
    return run


def write_task(store: StoreLayout, name: str = TASK, description: str = "") -> None:
    folder = store.task(name)
    uris.write(folder.description, description.encode())
    uris.write(uris.join(folder.root, "train.tsv"), LINES.encode())


class Request:
    """A DAG run whose tasks are executed one by one."""

    def __init__(self, store: StoreLayout, *, run_type: str = "manual") -> None:
        self.store = store
        self.dag_run = SimpleNamespace(
            dag_id=DAG_ID, run_id=f"{run_type}__1", run_type=run_type, conf={}, partition_key=None
        )
        self.run = store.run(identity.run_key(DAG_ID, self.dag_run.run_id))
        self.pushed: dict[str, Any] = {}

    @property
    def context(self) -> Any:
        return self.context_of()

    def context_of(self, map_index: int = -1) -> Any:
        """Return the context of a task, of a mapped one with its number."""
        ti = SimpleNamespace(map_index=map_index, try_number=1)
        ti.xcom_push = lambda key, value: self.pushed.update({key: value})
        return {"dag_run": self.dag_run, "ti": ti}

    def validate(self, preset: str = "finetuning_smoke", **settings: Any) -> list[str]:
        self.dag_run.conf = {name.replace("__", "."): value for name, value in settings.items()}
        operator = ValidateFinetuningOperator(
            task_id="validate", store_uri=self.store.root, preset=preset, gcp_conn_id=CONN_ID
        )
        found: list[str] = operator.execute(self.context)
        return found

    def plan(self, **examples: int) -> list[dict[str, Any]]:
        manifest = write_manifest(self.store, TASK, **examples)
        PreparedInput(manifest=manifest).write(self.run.prepared_task(TASK))
        operator = PlanFinetuningOperator(task_id="plan", store_uri=self.store.root)
        return operator.execute(self.context)

    @property
    def config(self) -> Any:
        return parse_finetuning_config(uris.read(self.run.config), self.run.config)


@pytest.fixture
def model(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> FinishedRun:
    """A model in use, a described task, and a cloud."""
    connect(world, monkeypatch)
    run = promoted(str(tmp_path), "1")
    write_task(run.store)
    return run


@pytest.fixture
def request_(model: FinishedRun) -> Request:
    return Request(model.store)


# --- validate


def test_a_good_request_is_recorded_with_its_estimate(
    request_: Request, model: FinishedRun, capsys: pytest.CaptureFixture[str]
) -> None:
    assert request_.validate(finetuning__tasks=[TASK]) == [TASK]
    assert request_.pushed == {
        "run_uri": request_.run.root,
        "config_uri": request_.run.config,
        NOTE: "Lineage default",
    }
    record = RunRecord.load(request_.run.record)
    assert (record.partition, record.lineage_id) == ("", "default")
    # What the store decides is decided now, for all tasks of the run.
    assert request_.config.encoder.version == model.version_id
    estimate = RunEstimate.load(request_.run.estimate)
    lines = capsys.readouterr().out.splitlines()
    assert estimate.lines[0] in next(line for line in lines if "[info" in line)
    # Of 40 lines 80 % are to learn from, three times, 32 at a time.
    assert (estimate.train_steps, estimate.rows, estimate.tokens) == (3, 96, 96 * 128)
    assert any(line.startswith("trials: 1 = 1 task(s)") for line in estimate.lines)
    assert any("at most 1.20 USD, an estimate" in line for line in estimate.lines)
    assert not uris.exists(request_.run.outcome)


def test_all_reasons_of_a_refusal_come_in_one_round(request_: Request) -> None:
    wrong = {"finetuning__learning_rates": [-1.0], "tpu__accelerator_type": "v5litepod-9"}
    with pytest.raises(AirflowFailException) as refused:
        request_.validate(finetuning__tasks=["no-such-task"], **wrong)
    said = str(refused.value)
    assert "finetuning.learning_rates" in said
    assert "no-such-task" in said
    assert "v5litepod-9" in said


def test_the_estimate_counts_all_trainings(request_: Request) -> None:
    seeds = {"finetuning__random_seeds": [1, 2, 3], "finetuning__learning_rates": [1e-3, 2e-3]}
    request_.validate(finetuning__tasks=[TASK], encoder__compare_with=["start"], **seeds)
    assert RunEstimate.load(request_.run.estimate).train_steps == 3 * 2 * 3 * 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, r"finetuning\.tasks: name at least one"),
        ({"finetuning__tasks": ["absent"]}, r"tasks/absent/task\.toml does not exist"),
        (
            {"finetuning__tasks": [TASK], "encoder__version": "v-0123456789ab"},
            "'v-0123456789ab' does not exist",
        ),
        (
            {"finetuning__tasks": [TASK], "encoder__lineage_id": "other"},
            "No model of lineage 'other' is in use",
        ),
        (
            {"finetuning__tasks": [TASK], "finetuning__max_seq_length": 512},
            "512 tokens do not fit v-[0-9a-f]{12}, which has 128 positions",
        ),
        (
            {"finetuning__tasks": [TASK], "encoder__compare_with": ["previous"]},
            "is the first version of its line",
        ),
        (
            {"finetuning__mode": "eval", "finetuning__source_run": "0" * 12},
            f"{'0' * 12} is no fine-tuning run",
        ),
        ({"finetuning__tasks": [TASK], "training__train_steps": 1}, "there is no such setting"),
        ({"finetuning__tasks": [TASK], "tpu__runtime_version": "v9-no"}, r"tpu\.runtime_version"),
    ],
)
def test_what_cannot_work_is_refused(
    request_: Request, settings: Mapping[str, Any], said: str
) -> None:
    with pytest.raises(AirflowFailException, match=said):
        request_.validate(**settings)
    assert not uris.exists(request_.run.record)


def test_a_damaged_model_is_refused_before_a_tpu_is_rented(
    request_: Request, model: FinishedRun
) -> None:
    [weights] = [uri for uri in uris.list_files(model.lineage.versions) if "data-00000" in uri]
    uris.write(weights, b"x" * uris.size(weights))
    with pytest.raises(AirflowFailException, match="other content than was published"):
        request_.validate(finetuning__tasks=[TASK])


def test_a_task_that_cannot_be_read_is_refused(request_: Request) -> None:
    write_task(request_.store, "wrong", 'label_column = "mood"\n')
    with pytest.raises(AirflowFailException, match=r"wrong.*label_column"):
        request_.validate(finetuning__tasks=["wrong"])


def test_a_dry_run_spends_nothing(request_: Request) -> None:
    with pytest.raises(AirflowSkipException, match="Dry run"):
        request_.validate(finetuning__tasks=[TASK], run__dry_run=True)
    assert RunOutcome.load(request_.run.outcome).outcome is OutcomeKind.SKIPPED
    assert RunEstimate.load(request_.run.estimate)


def test_an_installation_without_tasks_sees_nothing_red(model: FinishedRun) -> None:
    request = Request(model.store, run_type="scheduled")
    with pytest.raises(AirflowSkipException, match=r"finetuning\.tasks is empty"):
        request.validate()
    assert RunOutcome.load(request.run.outcome).outcome is OutcomeKind.SKIPPED


def test_a_scheduled_run_before_the_first_model_is_skipped(
    tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(world, monkeypatch)
    request = Request(StoreLayout(str(tmp_path)), run_type="scheduled")
    with pytest.raises(AirflowSkipException, match="no model of lineage 'default' is in use yet"):
        request.validate(finetuning__tasks=[TASK])


def test_a_run_that_is_cleared_goes_on_with_the_model_it_had(
    request_: Request, model: FinishedRun
) -> None:
    request_.validate(finetuning__tasks=[TASK])
    promoted(model.store.root, "2", model.version_id)
    assert request_.validate(finetuning__tasks=[TASK]) == [TASK]
    assert request_.config.encoder.version == model.version_id
    with pytest.raises(AirflowFailException, match="recorded with another configuration"):
        request_.validate(finetuning__tasks=[TASK], finetuning__num_train_epochs=1.0)


def test_checks_and_predictions_are_held_to_what_requests_may_read(
    request_: Request, source: RunLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[request_paths.RequestRoots | None] = []
    wanted = request_roots(load_settings(), request_.store)

    def look(*_: Any) -> list[str]:
        seen.append(request_paths.current())
        return []

    monkeypatch.setattr(finetuning, "check", look)
    monkeypatch.setattr(classifiers, "predict_files", look)
    monkeypatch.setattr(PythonModuleOperator, "execute", lambda *_: {"predictions": "x.tsv"})
    request_.validate(**using(source, "predict"))
    request_.plan()
    PredictOperator(task_id="predict", store_uri=request_.store.root).execute(request_.context)
    assert seen == [wanted, wanted]


# --- prepare


def test_a_task_is_prepared_by_the_data_jobs_module(request_: Request) -> None:
    request_.validate(finetuning__tasks=[TASK])
    operator = PrepareTaskOperator(
        task_id="prepare",
        store_uri=request_.store.root,
        task_name=TASK,
    )
    assert operator.module == "beam_jobs.prepare_task"
    assert operator.command_line(request_.context) == [
        *("--config", request_.run.config),
        *("--store", request_.store.root),
        *("--task", TASK),
    ]


# --- plan


def test_the_plan_is_made_once_and_names_every_trial(request_: Request, model: FinishedRun) -> None:
    request_.validate(
        finetuning__tasks=[TASK],
        finetuning__random_seeds=[1, 2],
        encoder__compare_with=["start"],
    )
    [rental] = request_.plan()
    assert rental == {
        "run_uri": request_.run.root,
        "arguments": ["--run", request_.run.root, "--store", request_.store.root],
    }
    plan = FinetuningPlan.load(request_.run.finetuning_plan)
    assert [trial.trial_id for trial in plan.trials] == [
        "weather.model.0.001.1",
        "weather.model.0.001.2",
        "weather.start.0.001.1",
        "weather.start.0.001.2",
    ]
    assert plan.models["model"].version_id == model.version_id
    assert plan.models["model"].files_sha256
    # The line of the registry's tests began with random weights.
    assert plan.models["start"].uri is None
    request_.plan()
    assert FinetuningPlan.load(request_.run.finetuning_plan) == plan


def test_previous_is_the_parent(model: FinishedRun) -> None:
    second = promoted(model.store.root, "2", model.version_id)
    request = Request(model.store)
    request.validate(finetuning__tasks=[TASK], encoder__compare_with=["previous", "start"])
    request.plan()
    plan = FinetuningPlan.load(request.run.finetuning_plan)
    assert plan.models["model"].version_id == second.version_id
    assert plan.models["previous"].version_id == model.version_id


def test_each_further_tpu_has_a_folder_of_its_own(request_: Request) -> None:
    request_.validate(
        finetuning__tasks=[TASK],
        finetuning__random_seeds=[1, 2, 3],
        finetuning__parallel_tpus=2,
    )
    rentals = request_.plan()
    folders = rental_folders(request_.run)
    assert [rental["run_uri"] for rental in rentals] == [folder.root for folder in folders]
    assert [rental["arguments"][-2:] for rental in rentals] == [
        ["--group", "0/2"],
        ["--group", "1/2"],
    ]
    own = RunRecord.load(request_.run.record)
    further = RunRecord.load(folders[1].record)
    assert (further.rental_of, further.tpu_number) == (own.run_key, 1)
    assert (further.dag_id, further.run_id) == (own.dag_id, own.run_id)
    assert further.run_key == folders[1].root.rpartition("/")[2] != own.run_key
    assert uris.read(folders[1].config) == uris.read(request_.run.config)
    # What a TPU that was lost brought forward is told by its own trials.
    shares = [[place.root.split("/")[-2] for place in trainings(folder)] for folder in folders]
    assert shares == [
        ["weather.model.0.001.1", "weather.model.0.001.3"],
        ["weather.model.0.001.2"],
    ]


def test_there_are_no_more_tpus_than_trials(request_: Request) -> None:
    request_.validate(finetuning__tasks=[TASK], finetuning__parallel_tpus=5)
    assert len(request_.plan()) == 1
    assert len(rental_folders(request_.run)) == 1


def test_several_rates_need_validation_examples_to_choose_by(request_: Request) -> None:
    request_.validate(finetuning__tasks=[TASK], finetuning__learning_rates=[1e-3, 2e-3])
    with pytest.raises(AirflowFailException, match=r"'weather' has no validation examples.*0\.002"):
        request_.plan(train=40, test=10)
    assert not uris.exists(request_.run.finetuning_plan)
    assert len(request_.plan(train=40, validation=1, test=10)) == 1


# --- what was trained is used


@pytest.fixture
def source(model: FinishedRun) -> RunLayout:
    """A finished run with two seeds, of which the second is the better."""
    request = Request(model.store, run_type="source")
    request.validate(finetuning__tasks=[TASK], finetuning__random_seeds=[1, 2])
    request.plan()
    plan = FinetuningPlan.load(request.run.finetuning_plan)
    for trial in plan.trials:
        write_trained(request.run, trial, plan.models[trial.model])
    FinetuningReport(
        run_key=request.run.root.rpartition("/")[2],
        models=plan.models,
        tasks=[_summary(plan.trials[-1])],
        comparisons=[],
        created=NOW,
    ).write(request.run.training_summary)
    return request.run


def _summary(best: Trial) -> TaskSummary:
    return TaskSummary(
        task=best.task,
        model=best.model,
        learning_rate=best.learning_rate,
        random_seeds=[1, 2],
        best_trial=best.trial_id,
        metrics={},
        validation={},
        majority={},
    )


def using(source: RunLayout, mode: str, **settings: Any) -> dict[str, Any]:
    key = source.root.rpartition("/")[2]
    return {"finetuning__mode": mode, "finetuning__source_run": key, **settings}


def test_eval_measures_all_trials_of_the_source(request_: Request, source: RunLayout) -> None:
    assert request_.validate(**using(source, "eval")) == [TASK]
    [rental] = request_.plan()
    assert rental["run_uri"] == request_.run.root
    plan = FinetuningPlan.load(request_.run.finetuning_plan)
    assert plan.trials == FinetuningPlan.load(source.finetuning_plan).trials
    assert RunEstimate.load(request_.run.estimate).train_steps == 0


@pytest.mark.parametrize("mode", ["eval", "export", "predict"])
def test_what_was_not_trained_cannot_be_used(
    request_: Request, source: RunLayout, mode: str
) -> None:
    formats = {"finetuning__export_formats": ["hugging_face"]} if mode == "export" else {}
    best = source.trial("weather.model.0.001.2")
    uris.delete(best.result)
    with pytest.raises(AirflowFailException, match=r"weather\.model\.0\.001\.2 .*is not done"):
        request_.validate(**using(source, mode, **formats))


def test_what_retention_has_taken_cannot_be_used(request_: Request, source: RunLayout) -> None:
    training = source.trial("weather.model.0.001.1").training
    uris.delete(training.checkpoint(10))
    with pytest.raises(AirflowFailException, match=r"weather\.model\.0\.001\.1 .*no weights"):
        request_.validate(**using(source, "eval"))
    # The best is another one.
    formats = {"finetuning__export_formats": ["hugging_face"]}
    assert request_.validate(**using(source, "export", **formats)) == []


def test_what_a_classifier_was_trained_on_has_to_be_there(
    request_: Request, source: RunLayout
) -> None:
    uris.delete(FinetuningPlan.load(source.finetuning_plan).manifests[TASK])
    with pytest.raises(AirflowFailException, match=r"manifest\.json, which says what run .* train"):
        request_.validate(**using(source, "eval"))


def test_weights_that_are_cut_cannot_be_used(request_: Request, source: RunLayout) -> None:
    training = source.trial("weather.model.0.001.2").training
    [weights] = [uri for uri in uris.list_files(training.root) if uri.endswith("model.index")]
    uris.write(weights, b"cut")
    with pytest.raises(AirflowFailException, match=r"model\.index is missing or cut"):
        request_.validate(**using(source, "eval"))


def test_what_is_measured_again_has_rows_of_the_same_length(
    request_: Request, source: RunLayout
) -> None:
    with pytest.raises(AirflowFailException, match=r"finetuning\.max_seq_length: 64, but run"):
        request_.validate(**using(source, "eval", finetuning__max_seq_length=64))


def test_a_locked_list_of_tasks_is_not_filled_by_another_run(
    request_: Request, source: RunLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRETRAIN_LOCKED_SETTINGS", "finetuning.tasks")
    with pytest.raises(AirflowFailException, match=r"was trained on weather, and only the inst"):
        request_.validate(**using(source, "eval"))
    assert not uris.exists(request_.run.record)


def test_a_promotion_chooses_a_locked_version(
    request_: Request, model: FinishedRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REPRETRAIN_LOCKED_SETTINGS", "encoder.*")
    path = tmp_path / "preset.toml"
    path.write_text(f'[finetuning]\ntasks = ["{TASK}"]\n[tpu]\nzones = ["us-central1-a"]\n')
    wanted = {"encoder__version": model.version_id}
    with pytest.raises(AirflowFailException, match=r"encoder\.version: only the installation"):
        request_.validate(str(path), **wanted)
    request_.dag_run.run_type = "operator_triggered"
    for other in ({"encoder__version": "v-000000000000"}, wanted | {"encoder__lineage_id": "x"}):
        with pytest.raises(AirflowFailException, match="only the installation"):
            request_.validate(str(path), **other)
    assert request_.validate(str(path), **wanted) == [TASK]


def test_export_takes_the_best_and_rents_nothing(request_: Request, source: RunLayout) -> None:
    # How long rows are, the classifier says.
    formats = {"finetuning__export_formats": ["hugging_face"], "finetuning__max_seq_length": 512}
    assert request_.validate(**using(source, "export", **formats)) == []
    operator = PlanFinetuningOperator(task_id="plan", store_uri=request_.store.root)
    assert operator.execute(request_.context) == []
    plan = FinetuningPlan.load(request_.run.finetuning_plan)
    assert [trial.trial_id for trial in plan.trials] == ["weather.model.0.001.2"]
    assert list(plan.manifests) == [TASK]


def test_predict_needs_files_to_predict(request_: Request, source: RunLayout) -> None:
    with pytest.raises(AirflowFailException, match="predict is empty"):
        request_.validate(**using(source, "predict"))
    write_task(request_.store, TASK, 'predict = "new.tsv"\n')
    with pytest.raises(AirflowFailException, match=r"new\.tsv"):
        request_.validate(**using(source, "predict"))
    uris.write(uris.join(request_.store.task(TASK).root, "new.tsv"), b"text\na day of sun\n")
    assert request_.validate(**using(source, "predict")) == []


@pytest.mark.parametrize("kind", [ExportClassifiersOperator, PredictOperator])
def test_what_nobody_asked_for_is_skipped(request_: Request, kind: Any) -> None:
    request_.validate(finetuning__tasks=[TASK])
    operator = kind(task_id="use", store_uri=request_.store.root)
    with pytest.raises(AirflowSkipException):
        operator.execute(request_.context)
    assert not uris.exists(request_.run.outcome)


# --- the end


def end(request: Request, person: str | None = None) -> tuple[str, str]:
    """Return how the last task lets the run end: its result or what it fails with, and the note."""
    request.pushed.clear()
    context = request.context
    left = {(FIRST_TASK, ENDED_BY): {"name": person}} if person else {}
    context["ti"].xcom_pull = lambda task_ids, key: left.get((task_ids, key))
    try:
        result = EndRunOperator(task_id="end", store_uri=request.store.root).execute(context)
    except RunHasFailed as failure:
        result = str(failure)
    return result, request.pushed.get(NOTE, "")


def test_a_run_that_has_reached_what_it_is_for_ends_well(request_: Request) -> None:
    request_.validate(finetuning__tasks=[TASK])
    outcomes.record(request_.run, OutcomeKind.COMPLETED, "best: x", written_by="report")
    assert end(request_) == ("completed", "Completed: best: x. Lineage default")


def test_a_run_without_an_outcome_has_failed_whatever_its_tasks_were_marked_as(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRETRAIN_STORE_URI", request_.store.root)
    monkeypatch.setattr(run_end, "known_failed_tasks", lambda _dag_id, _run_id: [])
    request_.validate(finetuning__tasks=[TASK])
    for _ in range(2):
        said, note = end(request_, "ada")
        assert "ended by ada in Airflow; it ended without a result" in said
        assert note.startswith("Failed: ended by ada in Airflow")
    [uri] = list_alerts(request_.store)
    alert = Alert.load(uri)
    assert alert.cause == "run-failed"
    assert "ended by ada" in alert.reason
    outcome = RunOutcome.load(request_.run.outcome)
    assert (outcome.outcome, outcome.written_by) == (OutcomeKind.FAILED, "end")


def test_a_run_that_was_refused_keeps_the_note_of_that(request_: Request) -> None:
    request_.validate(finetuning__tasks=[TASK])
    outcomes.record(request_.run, OutcomeKind.COMPLETED, "best: x", written_by="report")
    # It was cleared, and the preset has changed since.
    with pytest.raises(AirflowFailException):
        request_.validate(finetuning__tasks=["absent"])
    assert end(request_) == ("The run was refused before anything was spent.", "")


def test_a_run_that_a_person_ends_before_it_began_is_told(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPRETRAIN_STORE_URI", request_.store.root)
    assert end(request_, "bob") == ("The run was ended by bob in Airflow before it began.", "")
    [uri] = list_alerts(request_.store)
    assert "ended by bob" in Alert.load(uri).reason


# --- a model comes into use


def receive(store: StoreLayout, key: str | None, preset: str) -> dict[str, Any]:
    operator = ReceiveModelOperator(task_id="receive", store_uri=store.root, preset=preset)
    context: Any = {"dag_run": SimpleNamespace(partition_key=key)}
    return operator.execute(context)


@pytest.fixture
def preset(tmp_path: Path) -> str:
    path = tmp_path / "own.toml"
    path.write_text(
        f'extends = "finetuning_smoke"\n[finetuning]\ntasks = ["{TASK}"]\n'
        '[encoder]\ncompare_with = ["previous", "start"]\n'
    )
    return str(path)


def test_a_model_that_comes_into_use_starts_its_run(tmp_path: Path, preset: str) -> None:
    first = promoted(str(tmp_path), "1")
    second = promoted(str(tmp_path), "2", first.version_id)
    key = model_key("default", second.version_id)
    assert receive(first.store, key, preset) == {
        "run_id": f"promotion__{second.version_id}",
        "conf": {"encoder.version": second.version_id},
    }
    # The first of a line was trained from none, so it is not compared with one.
    found = receive(first.store, model_key("default", first.version_id), preset)
    assert found["conf"]["encoder.compare_with"] == ["start"]
    config = with_overrides(load_finetuning_preset(preset), found["conf"])
    assert config.encoder.version == first.version_id


def test_a_model_starts_nothing_where_nothing_is_to_be_done(tmp_path: Path, preset: str) -> None:
    first = promoted(str(tmp_path), "1")
    key = model_key("default", first.version_id)
    with pytest.raises(AirflowSkipException, match=r"finetuning\.tasks is empty"):
        receive(first.store, key, "finetuning_smoke")
    with pytest.raises(AirflowSkipException, match="is of lineage other"):
        receive(first.store, model_key("other", first.version_id), preset)
    with pytest.raises(AirflowFailException, match="does not exist"):
        receive(first.store, model_key("default", "v-0123456789ab"), preset)
    with pytest.raises(AirflowFailException, match="no partition key"):
        receive(first.store, None, preset)


def test_a_completed_run_is_reopened_when_it_is_cleared(request_: Request) -> None:
    settings = {"finetuning__random_seeds": [1, 2], "finetuning__parallel_tpus": 2}
    request_.validate(finetuning__tasks=[TASK], **settings)
    request_.plan()
    for folder in rental_folders(request_.run):
        outcomes.record(folder, OutcomeKind.COMPLETED, "done", written_by="report")
    request_.validate(finetuning__tasks=[TASK], **settings)
    request_.plan()
    for folder in rental_folders(request_.run):
        assert not uris.exists(folder.outcome)


def failed(request: Request) -> list[RunLayout]:
    """Return the folders of a run on two TPUs whose end is known: it failed."""
    settings = {"finetuning__random_seeds": [1, 2], "finetuning__parallel_tpus": 2}
    request.validate(finetuning__tasks=[TASK], **settings)
    request.plan()
    folders = rental_folders(request.run)
    for folder in folders:
        outcomes.record(folder, OutcomeKind.FAILED, "it broke", written_by="pipeline_watch")
    return folders


def test_a_run_goes_on_when_one_of_its_tpus_is_reserved_again(request_: Request) -> None:
    own, further = failed(request_)
    TpuReserveOperator(
        task_id="reserve",
        store_uri=request_.store.root,
        gcp_conn_id=CONN_ID,
    ).execute(request_.context_of(1))
    # Both: the watch looks at a further TPU as long as its run goes on.
    assert not uris.exists(further.outcome)
    assert not uris.exists(own.outcome)


def test_a_run_goes_on_when_it_is_planned_again(request_: Request) -> None:
    own, _ = failed(request_)
    request_.plan()
    assert not uris.exists(own.outcome)


@pytest.mark.parametrize(
    "kind", [ReportFinetuningOperator, ExportClassifiersOperator, CompressClassifiersOperator]
)
def test_a_run_goes_on_when_its_last_tasks_are_tried_again(request_: Request, kind: Any) -> None:
    request_.validate(
        finetuning__tasks=[TASK],
        finetuning__export_formats=["hugging_face"],
        compression__children=["trim"],
    )
    request_.plan()
    outcomes.record(request_.run, OutcomeKind.FAILED, "it broke", written_by="pipeline_watch")
    operator = kind(task_id="last", store_uri=request_.store.root)
    # Nothing was trained. That it fails again is news.
    with pytest.raises(AirflowFailException):
        operator.execute(request_.context)
    assert not uris.exists(request_.run.outcome)


def test_a_prediction_goes_on(request_: Request, source: RunLayout) -> None:
    write_task(request_.store, TASK, 'predict = "new.tsv"\n')
    uris.write(uris.join(request_.store.task(TASK).root, "new.tsv"), b"text\na day of sun\n")
    request_.validate(**using(source, "predict"))
    request_.plan()
    outcomes.record(request_.run, OutcomeKind.FAILED, "it broke", written_by="pipeline_watch")
    uris.delete(uris.join(request_.store.task(TASK).root, "new.tsv"))
    operator = PredictOperator(task_id="predict", store_uri=request_.store.root)
    with pytest.raises(AirflowFailException, match=r"new\.tsv"):
        operator.execute(request_.context)
    assert not uris.exists(request_.run.outcome)


def test_what_is_skipped_leaves_the_end_of_the_run_as_it_is(request_: Request) -> None:
    request_.validate(finetuning__tasks=[TASK])
    outcomes.record(request_.run, OutcomeKind.COMPLETED, "done", written_by="report")
    for kind in (ExportClassifiersOperator, PredictOperator):
        operator = kind(task_id="use", store_uri=request_.store.root)
        with pytest.raises(AirflowSkipException):
            operator.execute(request_.context)
    assert RunOutcome.load(request_.run.outcome).outcome is OutcomeKind.COMPLETED
