"""The tasks of a run that need no TPU, executed in this process: validate, plan, judge, promote."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.definitions.asset import AssetUniqueKey
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException
from airflow.sdk.execution_time.context import OutletEventAccessor

from hooks.notes import BACKFILL, NOTE
from model_registry import lease, outcomes, registry
from operators.failures import PipelineFailure
from operators.pipeline_assets import PROMOTED_MODEL
from operators.plan import PlanJobsOperator
from operators.promotion import JudgeOperator, PromoteOperator
from operators.validate import ValidateRunOperator
from pipeline_alerts.causes import Remedy
from pipeline_config import PipelineConfig, load_preset, parse_config, with_overrides
from pipeline_config.settings import load_settings
from pipeline_store import identity, request_paths, uris
from pipeline_store.formats import (
    BackfillRuns,
    OutcomeKind,
    PartitionManifest,
    PreparedInput,
    RunEstimate,
    RunOutcome,
    RunPlan,
    RunRecord,
    RunRefusal,
)
from pipeline_store.layout import RunLayout, StoreLayout
from preflight.request import request_roots
from preflight.run import checks
from tests.model_registry.runs import CONFIG, FinishedRun, change_manifest
from tests.pipeline_store.gcs_server import GcsState
from tests.pipeline_store.stores import cloud_storage
from tests.plugins.contexts import of_finished
from tests.plugins.driver import CONN_ID, connect
from tests.plugins.lineages import hold
from tests.tpu_lifecycle.world import World
from tpu_lifecycle.control.reaper_status import write_pass

__all__ = ["cloud_storage"]


def promoted(store: str, name: str, parent: str | None = None) -> FinishedRun:
    run = FinishedRun(store, name, parent=parent)
    registry.publish(run.store, run.run)
    registry.promote(run.lineage, run.version_id, expected_baseline=parent, reason="better")
    return run


@pytest.fixture
def versions(tmp_path: Path) -> list[FinishedRun]:
    """Two runs, each of whose models came into use, the second from the first."""
    first = promoted(str(tmp_path), "1")
    return [first, promoted(str(tmp_path), "2", first.version_id)]


def configure(run: FinishedRun, **settings: Any) -> None:
    dotted = {name.replace("__", "."): value for name, value in settings.items()}
    config = with_overrides(CONFIG, dotted | {"corpus.partition": run.partition})
    uris.write(run.run.config, config.to_bytes())


def outcome(run: RunLayout) -> tuple[OutcomeKind, str]:
    found = RunOutcome.load(run.outcome)
    return found.outcome, found.written_by


# --- validate


class Request:
    """A DAG run whose first task is executed."""

    def __init__(self, store: Path, *, partition: str = "day-1", run_type: str = "manual") -> None:
        self.store = StoreLayout(str(store))
        self.dag_run = SimpleNamespace(
            dag_id="dag",
            run_id=f"{run_type}__1",
            run_type=run_type,
            conf={},
            triggering_user_name="ada",
            partition_key=partition,
        )
        self.run = self.store.run(identity.run_key("dag", self.dag_run.run_id))
        self.left: dict[str, Any] = {}

    def validate(self, **settings: Any) -> dict[str, str]:
        self.dag_run.conf = {name.replace("__", "."): value for name, value in settings.items()}
        operator = ValidateRunOperator(
            task_id="validate", store_uri=self.store.root, preset="smoke", gcp_conn_id=CONN_ID
        )
        ti = SimpleNamespace(
            xcom_push=lambda key, value: self.left.update({key: value}),
            xcom_pull=lambda task_ids, key: self.left.get(key),
        )
        context: Any = {"dag_run": self.dag_run, "ti": ti}
        return operator.execute(context)


@pytest.fixture
def request_(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> Request:
    connect(world, monkeypatch)
    text = tmp_path / "corpus" / "day-1" / "text.txt"
    text.parent.mkdir(parents=True)
    text.write_text("A document of one sentence.\n")
    return Request(tmp_path)


def test_a_good_request_is_recorded_with_its_estimate(
    request_: Request, capsys: pytest.CaptureFixture[str]
) -> None:
    result = request_.validate()
    assert result["run_uri"] == request_.run.root
    record = RunRecord.load(request_.run.record)
    assert (record.partition, record.lineage_id) == ("day-1", result["lineage_id"])
    assert parse_config(uris.read(request_.run.config), "").corpus.partition == "day-1"
    estimate = RunEstimate.load(request_.run.estimate)
    first = next(line for line in capsys.readouterr().out.splitlines() if "[info" in line)
    assert estimate.lines[0] in first
    assert not uris.exists(request_.run.outcome)


def test_a_dry_run_ends_after_the_checks(request_: Request) -> None:
    with pytest.raises(AirflowSkipException, match="Dry run: all checks passed"):
        request_.validate(run__dry_run=True)
    assert RunEstimate.load(request_.run.estimate)
    assert outcome(request_.run) == (OutcomeKind.SKIPPED, "validate")


def test_what_the_tpu_service_does_not_offer_is_refused(request_: Request) -> None:
    with pytest.raises(AirflowFailException, match=r"tpu\.runtime_version"):
        request_.validate(tpu__runtime_version="v9-nobody-has-it")
    assert not uris.exists(request_.run.record)


@pytest.mark.parametrize(
    ("conf", "expected"),
    [
        ({"training.train_step": 5}, "Did you mean 'training.train_steps'?"),
        ({"training": {"train_steps": 5}}, "settings are not nested"),
        ({"masking.max_seq_length": 512}, "do not fit a model"),
        ({"corpus.partition": "2031-01-01"}, "2031-01-01"),
    ],
)
def test_a_bad_request_is_refused_in_words(
    request_: Request, conf: dict[str, Any], expected: str
) -> None:
    with pytest.raises(AirflowFailException) as refused:
        request_.validate(**conf)
    assert expected in str(refused.value)
    assert not uris.exists(request_.run.record)


def test_a_dry_run_refuses_what_a_run_would_refuse(request_: Request) -> None:
    with pytest.raises(PipelineFailure, match=r"vocabulary\.uri") as refused:
        request_.validate(run__dry_run=True, vocabulary__uri="/nowhere/vocab.txt")
    assert not uris.exists(request_.run.record)
    # As the alert advises: change what the reason names and trigger a new run.
    assert refused.value.remedy is Remedy.CHANGE_REQUEST
    again = Request(Path(request_.store.root), run_type="backfill")
    assert again.validate()["run_uri"] == again.run.root


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("corpus__input_pattern", "/etc/*"),
        ("vocabulary__uri", "/etc/shadow"),
        ("model__init_checkpoint", "runs/0a1b2c3d4e5f/training"),
    ],
)
def test_what_requests_may_not_read_is_not_looked_for(
    request_: Request, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    def check(config: PipelineConfig, *_: Any) -> list[str]:
        assert value not in config.to_bytes().decode(), "it was looked for"
        return []

    monkeypatch.setattr(checks, "check", check)
    with pytest.raises(AirflowFailException, match=name.replace("__", r"\.") + ": .*lies below"):
        request_.validate(**{name: value})


def test_all_reasons_of_a_refusal_come_in_one_round_and_are_kept(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def check(config: PipelineConfig, *_: Any) -> list[str]:
        asked.append(config.tpu.accelerator_type)
        return [
            "tpu.accelerator_type: there is no such type",
            "training.train_steps: of the preset",
        ]

    monkeypatch.setattr(checks, "check", check)
    with pytest.raises(AirflowFailException) as refused:
        request_.validate(training__train_steps=-4, tpu__accelerator_type="v5litepod-9")
    assert asked == ["v5litepod-9"]
    kept = RunRefusal.load(request_.run.refusal)
    names = [line.partition(":")[0] for line in kept.reasons]
    # Of the service, too, which knows no such type.
    assert names == ["training.train_steps", "tpu.accelerator_type", "tpu.accelerator_type"]
    assert all(line in str(refused.value) for line in kept.reasons)
    # What the log would show below the reasons: where they came from.
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    assert not uris.exists(request_.run.record)


@pytest.mark.parametrize(
    ("conf", "named"),
    [
        # A violation may name a setting that the request leaves as it is.
        ({"masking.max_seq_length": 512}, {"masking.max_seq_length"}),
        (
            {"training.train-steps": 5, "masking.max_seq_length": 512, "budget.max_hours": 9},
            {"training.train-steps", "masking.max_seq_length"},
        ),
        ({"training.global_batch_size": 0, "corpus.input_pattern": "/etc/*"}, None),
        # What fits what was asked for is no reason.
        (
            {"training.train_steps": "many", "optimizer.warmup_steps": 50000},
            {"training.train_steps", "optimizer.warmup_steps"},
        ),
    ],
)
def test_settings_that_break_rules_are_found_however_they_are_named(
    tmp_path: Path, conf: dict[str, Any], named: set[str] | None
) -> None:
    validate = ValidateRunOperator(task_id="v", store_uri=str(tmp_path), preset="smoke")
    store, preset = StoreLayout(str(tmp_path)), load_preset("smoke")
    asked = validate._asked(preset, conf, store, is_own=False)
    assert asked.dropped == (named or conf.keys())
    assert not any("warm-up" in line for line in asked.violations)
    rest = {name: value for name, value in conf.items() if name not in asked.dropped}
    assert asked.config == with_overrides(preset, rest)


def test_the_checks_are_held_to_what_requests_may_read(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[request_paths.RequestRoots | None] = []

    def check(*_: Any) -> list[str]:
        seen.append(request_paths.current())
        return []

    monkeypatch.setattr(checks, "check", check)
    request_.validate()
    assert seen == [request_roots(load_settings(), request_.store)]


LOCK = "REPRETRAIN_LOCKED_SETTINGS"


@pytest.mark.parametrize("pattern", ["corpus.*", "corpus.partition"])
@pytest.mark.parametrize("run_type", ["manual", "backfill"])
def test_a_partition_key_is_a_request_too(
    request_: Request, monkeypatch: pytest.MonkeyPatch, pattern: str, run_type: str
) -> None:
    monkeypatch.setenv(LOCK, pattern)
    request_.dag_run.run_type = run_type
    with pytest.raises(AirflowFailException, match=r"corpus\.partition: only the installation"):
        request_.validate()
    request_.dag_run.partition_key = None
    with pytest.raises(AirflowFailException, match=r"corpus\.partition: only the installation"):
        request_.validate(corpus__partition="day-1")


def test_the_schedule_and_arrivals_choose_a_locked_partition(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCK, "corpus.*")
    request_.dag_run.run_type = "scheduled"
    assert request_.validate()["partition"] == "day-1"
    request_.dag_run.run_type, request_.dag_run.partition_key = "operator_triggered", None
    assert request_.validate(corpus__partition="day-1")["partition"] == "day-1"


@pytest.mark.parametrize(
    "conf",
    [
        {"corpus.partition": "day-1", "corpus.text_field": "body"},
        {"corpus.partition": "day-1", "training.random_seed": 5},
        {"corpus.text_field": "body"},
    ],
)
def test_another_dags_run_has_no_further_say(
    request_: Request, monkeypatch: pytest.MonkeyPatch, conf: dict[str, Any]
) -> None:
    monkeypatch.setenv(LOCK, "corpus.*")
    request_.dag_run.run_type, request_.dag_run.partition_key = "operator_triggered", None
    with pytest.raises(AirflowFailException, match=r"corpus\.\w+: only the installation"):
        request_.validate(**conf)


def test_what_imitates_an_arrival_is_a_request(
    request_: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LOCK, "corpus.*")
    request_.dag_run.run_id, request_.dag_run.partition_key = "arrival__day-1__0123456789ab", None
    with pytest.raises(AirflowFailException, match="only the installation"):
        request_.validate(corpus__partition="day-1")


def test_a_scheduled_day_without_text_is_skipped_with_an_outcome(tmp_path: Path) -> None:
    request = Request(tmp_path, partition="day-7", run_type="scheduled")
    with pytest.raises(AirflowSkipException, match="no file of partition day-7"):
        request.validate()
    assert outcome(request.run) == (OutcomeKind.SKIPPED, "validate")
    assert RunRecord.load(request.run.record).partition == "day-7"


def test_general_text_is_refused_as_the_runs_own_partition(request_: Request) -> None:
    # The partition comes from the run, not from the form.
    with pytest.raises(AirflowFailException, match=r"evaluation\.general_partition"):
        request_.validate(evaluation__general_partition="day-1")


def test_a_backfill_all_of_whose_runs_are_refused_is_known_with_them(request_: Request) -> None:
    """Its summary, and the page Models, name what it did not learn."""
    request_.dag_run.run_type = "backfill"
    listed = {"backfill_id": 7, "runs": {"backfill__1": "day-1"}, "is_backwards": False}
    request_.left[BACKFILL] = listed
    # What cannot be left as the preset has it: it is about what nobody has typed.
    with pytest.raises(AirflowFailException, match="masking"):
        request_.validate(masking__max_seq_length=512, model__lineage_id="other")
    [kept] = uris.list_files(request_.store.backfills)
    found = BackfillRuns.load(kept)
    assert (found.lineage_id, found.runs) == ("other", {"backfill__1": "day-1"})
    refusal = RunRefusal.load(request_.run.refusal)
    assert (refusal.lineage_id, refusal.backfill) == ("other", found.name)
    assert request_.left[NOTE].endswith("Partition day-1, lineage other")


def test_a_run_that_begins_anew_has_no_outcome(request_: Request) -> None:
    request_.validate()
    outcomes.record(request_.run, OutcomeKind.FAILED, "failed: train", written_by="release")
    request_.validate()
    assert not uris.exists(request_.run.outcome)


def test_a_run_says_so_when_nothing_would_reap_its_tpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, owner = StoreLayout(str(tmp_path)), load_settings().owner
    operator = ValidateRunOperator(task_id="validate", store_uri=store.root, preset="smoke")
    operator._warn_of_a_dead_reaper(store)
    assert "TPU REAPER: The reaper" in capsys.readouterr().out
    write_pass(store, owner, "my-project", seen=0, acted_on=0, problems=[])
    operator._warn_of_a_dead_reaper(store)
    assert capsys.readouterr().out == ""
    uris.write(store.reaper_pass(owner, "my-project"), b"not json")
    operator._warn_of_a_dead_reaper(store)
    assert "cannot be read" in capsys.readouterr().out


# --- plan


def plan(run: FinishedRun) -> dict[str, Any]:
    PreparedInput(manifest=run.manifest_uri).write(run.run.prepared_partition)
    operator = PlanJobsOperator(task_id="plan", store_uri=run.store.root)
    return operator.execute(of_finished(run))


def new_run(versions: list[FinishedRun], name: str, **settings: Any) -> FinishedRun:
    """Return a further run that holds the lineage and has no plan yet."""
    run = FinishedRun(versions[0].store.root, name)
    uris.delete(run.run.plan)
    configure(run, **settings)
    hold(run)
    return run


def pairs(words: list[str]) -> list[tuple[str, str]]:
    return list(zip(words[::2], words[1::2], strict=True))


def test_the_jobs_get_what_the_plan_says(versions: list[FinishedRun]) -> None:
    run = new_run(
        versions,
        "3",
        training__replay_fraction=0.1,
        training__partitions="unseen",
        evaluation__pattern="day-5",
        evaluation__rows_per_checkpoint=100,
    )
    other = PartitionManifest.load(run.manifest_uri).model_copy(update={"partition": "day-5"})
    other.write(five := run.lineage.manifest("day-5", "0" * 16))
    planned = plan(run)
    parent = run.lineage.version(versions[1].version_id)
    train = pairs(planned["train"])
    assert [value for name, value in train if name == "--manifest"] == [run.manifest_uri, five]
    assert ("--init-model", parent) in train
    replayed = [value for name, value in train if name == "--replay-manifest"]
    seen = registry.manifests(
        run.lineage, registry.load_version(run.lineage, versions[1].version_id)
    )
    assert replayed == [seen["day-1"], seen["day-2"]]
    assert [value for name, value in train if name == "--held-out-manifest"] == [five]
    evaluate = pairs(planned["evaluate"])
    assert ("--current-set", "day-3") in evaluate
    sets = [value.partition("=")[0] for name, value in evaluate if name == "--set"]
    assert sets == ["day-1", "day-2", "day-3", "day-5"]
    assert [value for name, value in evaluate if name == "--model"] == [
        f"candidate={run.run.training.root}",
        f"baseline={parent}",
    ]
    assert ("--earlier", parent) in evaluate
    assert ("--output", run.run.evaluation(versions[1].version_id)) in evaluate
    assert pairs(planned["probe"]) == [
        ("--run", run.run.root),
        ("--store", run.store.root),
        ("--candidate", run.run.training.root),
        ("--baseline", parent),
    ]
    assert planned["baseline"] == versions[1].version_id
    assert planned["run_uri"] == run.run.root


def test_what_a_disk_cannot_hold_is_refused_before_a_tpu_is_rented(cloud_storage: GcsState) -> None:
    first = FinishedRun("gs://bucket/store", "1")
    with pytest.raises(AirflowFailException, match=r"tpu\.disk_gigabytes: .* has 10 GB"):
        plan(new_run([first], "1", tpu__disk_gigabytes=10))


def test_the_first_run_has_no_baseline(tmp_path: Path) -> None:
    first = FinishedRun(str(tmp_path), "1")
    planned = plan(new_run([first], "1"))
    assert planned["baseline"] is None
    assert "--init-model" not in planned["train"]
    assert "--baseline" not in planned["probe"]
    assert f"candidate={first.run.training.root}" == planned["evaluate"][-1]


def test_a_partition_that_is_not_replayed_is_named(
    versions: list[FinishedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    change_manifest(versions[0].lineage, versions[1].version_id, "day-1", packing="full_sentences")
    plan(new_run(versions, "3", training__replay_fraction=0.1))
    assert "Partition day-1 is not replayed: " in capsys.readouterr().out


def test_the_steps_of_auto_are_kept_and_handed_to_the_trainer(
    versions: list[FinishedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    auto = {"training__train_steps": "auto", "training__max_passes": None}
    run = new_run(versions, "3", **auto)
    planned = plan(run)
    # 40 passes over 5,000 rows, a fifth of 32 rows a step replayed, whole loops of 10.
    assert RunPlan.load(run.run.plan).train_steps == 7810
    assert ("--train-steps", "7810") in pairs(planned["train"])
    out = capsys.readouterr().out
    assert "training.train_steps: auto is 7,810 steps: 40 passes over 5,000 rows" in out
    assert "training: 7,810 steps of 32 rows = 249,920 rows of at most 128 tokens" in out
    assert "rows: 5,000 to train on, which the steps go over 40 times, and 10,000 replayed" in out
    assert "estimate: " in out
    # What is known of rows and speed by then is not asked again.
    configure(run, **auto, training__max_train_steps=500)
    assert plan(run) == planned


def test_more_passes_than_allowed_are_refused_before_a_tpu_is_rented(
    versions: list[FinishedRun], capsys: pytest.CaptureFixture[str]
) -> None:
    run = new_run(versions, "3", training__train_steps=9000, training__max_passes=None)
    with pytest.raises(AirflowFailException, match=r"46\.1 times, and training\.max_passes"):
        plan(run)
    assert not uris.exists(run.run.plan)
    configure(run, training__train_steps=9000, training__max_passes=50)
    assert "--train-steps" not in plan(run)["train"]
    assert "WARNING: training.train_steps: 9,000 steps go over" in capsys.readouterr().out


def test_a_partition_that_was_seen_skips_the_rest(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "1")
    with pytest.raises(AirflowSkipException, match=f"seen already by {versions[1].version_id}"):
        plan(run)
    assert outcome(run.run) == (OutcomeKind.SKIPPED, "plan")


def test_a_run_that_does_not_hold_the_lineage_plans_nothing(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3")
    lease.break_lease(run.lineage, "test")
    with pytest.raises(AirflowFailException, match="may not continue the lineage"):
        plan(run)
    assert not uris.exists(run.run.plan)


def test_a_run_whose_parent_was_rolled_back_fails_at_once(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3")
    plan(run)
    registry.rollback(run.lineage, versions[0].version_id, reason="test")
    with pytest.raises(AirflowFailException, match="trigger a new run"):
        plan(run)


def test_a_partition_that_does_not_fit_fails_at_once(versions: list[FinishedRun]) -> None:
    run = new_run(versions, "3")
    configure(run, masking__max_seq_length=64)
    with pytest.raises(AirflowFailException, match="max_seq_length"):
        plan(run)


# --- judge and promote


def judge(run: FinishedRun) -> str:
    operator = JudgeOperator(task_id="judge", store_uri=run.store.root)
    return operator.execute(of_finished(run))


def promote(run: FinishedRun) -> tuple[str, dict[str, Any]]:
    event = OutletEventAccessor(key=AssetUniqueKey.from_asset(PROMOTED_MODEL))
    operator = PromoteOperator(task_id="promote", store_uri=run.store.root)
    context = of_finished(run, outlet_events={PROMOTED_MODEL: event})
    return operator.execute(context), event.extra


def test_a_rejection_is_the_runs_outcome(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1", gain=-0.5)
    hold(run)
    assert judge(run) == "rejected: worse"
    found = RunOutcome.load(run.run.outcome)
    assert (found.outcome, found.written_by) == (OutcomeKind.REJECTED, "judge")
    assert found.reason.startswith("rejected: worse: ")
    with pytest.raises(AirflowSkipException, match="The model in use stays"):
        promote(run)
    assert registry.production(run.lineage) is None


def test_a_promotion_is_not_yet_an_outcome_when_judged(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1")
    assert judge(run) == "promoted"
    assert not uris.exists(run.run.outcome)


def test_a_promoted_candidate_is_told_to_whoever_listens(versions: list[FinishedRun]) -> None:
    run = FinishedRun(versions[0].store.root, "3", parent=versions[1].version_id)
    hold(run)
    version_id, event = promote(run)
    model = registry.production(run.lineage)
    assert model is not None
    assert version_id == model.version_id == run.version_id
    assert event == {
        "lineage_id": "default",
        "version_id": run.version_id,
        "parent": versions[1].version_id,
        "partition": "day-3",
        "reason": RunOutcome.load(run.run.outcome).reason,
    }
    found = RunOutcome.load(run.run.outcome)
    assert (found.outcome, found.version_id) == (OutcomeKind.PROMOTED, run.version_id)
    # Again: nothing changes.
    assert promote(run)[0] == version_id
    assert RunOutcome.load(run.run.outcome) == found
    assert PROMOTED_MODEL in PromoteOperator(task_id="p", store_uri="/s").outlets


def test_a_run_that_lost_the_lineage_does_not_promote(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1")
    hold(run)
    lease.break_lease(run.lineage, "test")
    with pytest.raises(AirflowFailException, match="may not continue the lineage"):
        promote(run)
    assert registry.list_versions(run.lineage) == []
    assert not uris.exists(run.run.outcome)


def test_a_lease_that_is_broken_while_files_are_copied_stops_the_promotion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FinishedRun(str(tmp_path), "1")
    hold(run)
    publish = registry.publish

    def broken(*arguments: Any) -> Any:
        lease.break_lease(run.lineage, "test")
        return publish(*arguments)

    monkeypatch.setattr(registry, "publish", broken)
    with pytest.raises(AirflowFailException, match="may not continue the lineage"):
        promote(run)
    assert registry.production(run.lineage) is None


def test_another_model_in_use_fails_the_promotion_at_once(versions: list[FinishedRun]) -> None:
    run = FinishedRun(versions[0].store.root, "3", parent=versions[1].version_id)
    hold(run)
    registry.rollback(run.lineage, versions[0].version_id, reason="test")
    with pytest.raises(AirflowFailException, match="trigger a new run"):
        promote(run)


def test_without_a_persons_approval_nothing_is_promoted(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1")
    configure(run, promotion__require_approval=True)
    hold(run)
    with pytest.raises(AirflowFailException, match="Clear the task `approve`"):
        promote(run)
    assert registry.list_versions(run.lineage) == []
