"""DAG files must parse anywhere: quickly, without heavy libraries, a database or an environment."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).parents[2]
HEAVY = (
    *("tensorflow", "tf_keras", "official", "orbit"),
    *("apache_beam", "tokenizers", "sentencepiece", "sentencex", "py3langid", "pyarrow"),
    *("scipy", "sklearn", "matplotlib"),
    *("airflow.providers.google.common.hooks.base_google", "google.cloud.tpu_v2"),
)

# Parsing happens in a process of its own, with an empty environment and without a network, and with
# a database address at which nothing listens: any access would fail the parse.
PARSE = """
import json, re, socket, sys

def refuse(*args, **kwargs):
    raise OSError("DAG parsing opened a network connection")

socket.socket.connect = refuse
from airflow.dag_processing.dagbag import DagBag
from airflow.sdk.definitions._internal.expandinput import MappedArgument
from airflow.sdk.definitions.xcom_arg import XComArg
from airflow.serialization.serialized_objects import DagSerialization

def taken(value):
    # What a task is given of what others have returned, however deep in what it is given.
    if isinstance(value, MappedArgument):
        yield "a mapped argument"
    elif isinstance(value, XComArg):
        yield from (f"{task.task_id}[{key}]" for task, key in value.iter_references())
    elif isinstance(value, str):
        yield from (["a template"] if re.search(r"xcom|{{.*\\bti\\b|task_instance", value) else [])
    elif isinstance(value, dict):
        for inner in value.values():
            yield from taken(inner)
    elif isinstance(value, list | tuple | set):
        for inner in value:
            yield from taken(inner)

def given(task):
    # Of a mapped task what all and what each of its instances are given.
    if hasattr(task, "partial_kwargs"):
        return dict(task.partial_kwargs) | {"mapped over": task.expand_input.value}
    return vars(task)

bag = DagBag(sys.argv[1])
dags = {}
for dag_id, dag in bag.dags.items():
    tasks = {}
    for task in dag.tasks:
        tasks[task.task_id] = {
            "upstream": sorted(task.upstream_task_ids),
            "retries": task.retries,
            "takes": sorted({
                f"{name}: {what}" for name, value in given(task).items() if not name.startswith("_")
                for what in taken(value)
            }),
            "is_setup": task.is_setup,
            "is_teardown": task.is_teardown,
            "fails_run": getattr(task, "on_failure_fail_dagrun", False),
            "setups": sorted(setup.task_id for setup in task.get_upstreams_only_setups()),
            "max_active": task.max_active_tis_per_dag,
            "outlets": sorted(asset.name for asset in task.outlets),
            "execution_timeout": task.execution_timeout is not None,
            "tells": bool(task.on_failure_callback),
            "trigger_rule": task.trigger_rule,
            "is_mapped": task.get_closest_mapped_task_group() is not None
            or not hasattr(task, "execute"),
        }
    # The scheduler sees only the serialized DAG.
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    # What Airflow clears together with a task.
    for task_id in tasks:
        with_it = stored.get_task(task_id).get_upstreams_only_setups_and_teardowns()
        tasks[task_id]["cleared_with"] = sorted({task.task_id for task in with_it})
    dags[dag_id] = {
        "tasks": tasks,
        "tags": sorted(dag.tags),
        "doc": dag.doc_md or "",
        "params": {name: param for name, param in dag.params.dump().items()},
        "patterns": [
            schema["pattern"]
            for schema in (dag.params.get_param(name).schema for name in dag.params)
            if "pattern" in schema
        ],
        "dagrun_timeout": dag.dagrun_timeout is not None,
        "catchup": dag.catchup,
        "tells": bool(dag.on_failure_callback),
        "max_active_runs": dag.max_active_runs,
        "can_backfill": stored.timetable.periodic,
    }
print("RESULT " + json.dumps({
    "dags": dags,
    "errors": bag.import_errors,
    "modules": sorted(sys.modules),
}))
"""


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return parse(tmp_path_factory.mktemp("airflow"), "dags")


def parse(home: Path, files: str, **settings: str) -> dict[str, Any]:
    """Return what DAG files come to under some settings of an installation."""
    environment = {
        "PATH": str(Path(sys.executable).parent),
        "HOME": str(home),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql+psycopg2://nobody@127.0.0.1:1/none",
        "PYTHONPATH": str(REPOSITORY),
        **settings,
    }
    result = subprocess.run(
        [sys.executable, "-c", PARSE, str(REPOSITORY / files)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-3000:]
    line = next(line for line in result.stdout.splitlines() if line.startswith("RESULT "))
    content: dict[str, Any] = json.loads(line.removeprefix("RESULT "))
    return content


def test_every_file_parses_and_defines_its_dag(parsed: dict[str, Any]) -> None:
    assert parsed["errors"] == {}
    assert sorted(parsed["dags"]) == [
        "bert_finetuning",
        "bert_repretraining",
        "corpus_arrivals",
        "corpus_watch",
        "model_rollback",
        "pipeline_watch",
        "promoted_models",
        "store_retention",
        "tpu_reaper",
    ]


def test_no_form_takes_a_line_break_behind_a_value(parsed: dict[str, Any]) -> None:
    found = [pattern for dag in parsed["dags"].values() for pattern in dag["patterns"]]
    assert parsed["dags"]["model_rollback"]["patterns"]
    for pattern in found:
        assert "$" not in pattern or pattern.endswith(r"$(?!\n)"), pattern


def test_parsing_imports_no_heavy_library(parsed: dict[str, Any]) -> None:
    assert [name for name in HEAVY if name in parsed["modules"]] == []


def test_a_mirror_is_there_only_where_it_is_asked_for(
    parsed: dict[str, Any], tmp_path: Path
) -> None:
    rooms = {"mlflow", "pipeline_mirror", "operators.mirror"}
    assert not rooms & set(parsed["modules"])
    asked = parse(tmp_path, "dags/model_mirror.py", REPRETRAIN_MLFLOW_MIRROR="1")
    assert asked["errors"] == {}
    dag = asked["dags"]["model_mirror"]
    assert (dag["max_active_runs"], dag["tells"]) == (1, True)
    # Its library is imported by the task alone.
    assert rooms & set(asked["modules"]) == {"operators.mirror"}


def test_a_mirror_on_the_hub_is_there_only_where_it_is_asked_for(
    parsed: dict[str, Any], tmp_path: Path
) -> None:
    rooms = {"huggingface_hub", "pipeline_mirror", "operators.mirror"}
    assert not rooms & set(parsed["modules"])
    repository = "acme/bert-{lineage}"
    asked = parse(tmp_path, "dags/hub_mirror.py", REPRETRAIN_HUB_REPOSITORY=repository)
    assert asked["errors"] == {}
    dag = asked["dags"]["hub_mirror"]
    assert (dag["max_active_runs"], dag["tells"]) == (1, True)
    assert rooms & set(asked["modules"]) == {"operators.mirror"}


def test_plugins_do_not_shadow_other_modules(parsed: dict[str, Any]) -> None:
    # Airflow's plugin loader would execute plugins/operators/tpu.py as a module named `tpu`.
    stems = {path.stem for path in (REPOSITORY / "plugins").rglob("*.py")} - {"__init__"}
    assert stems & set(parsed["modules"]) <= {
        "model_pages",
        "run_notes",
        "run_traces",
        "trigger_form",
    }


def test_dags_are_as_an_operator_of_airflow_expects(parsed: dict[str, Any]) -> None:
    for dag_id, dag in parsed["dags"].items():
        assert dag["tags"], dag_id
        assert dag["doc"], dag_id
        assert not dag["catchup"], dag_id
        assert all(task["retries"] >= 2 for task in dag["tasks"].values()), dag_id


def test_tasks_that_need_a_tpu_outlast_a_stockout_and_an_outage(parsed: dict[str, Any]) -> None:
    tasks = parsed["dags"]["bert_repretraining"]["tasks"]
    for name in ("tpu.create", "tpu.train", "tpu.evaluate", "tpu.probe"):
        assert tasks[name]["retries"] >= 20, name


def test_nothing_can_cut_off_the_teardown(parsed: dict[str, Any]) -> None:
    for dag_id, dag in parsed["dags"].items():
        assert not dag["dagrun_timeout"], dag_id
        assert not any(task["execution_timeout"] for task in dag["tasks"].values()), dag_id


def test_the_tpu_is_given_back_whatever_fails(parsed: dict[str, Any]) -> None:
    tasks = parsed["dags"]["bert_repretraining"]["tasks"]
    assert tasks["tpu.delete"]["is_teardown"]
    assert tasks["tpu.delete"]["fails_run"]
    assert tasks["tpu.delete"]["retries"] >= 5
    assert {name for name, task in tasks.items() if task["is_setup"]} == {
        "lineage.claim",
        "tpu.reserve",
        "tpu.create",
    }
    assert {"tpu.reserve", "tpu.create"} <= set(tasks["tpu.delete"]["upstream"])
    # The gate holds no TPU, and a leaf besides the teardown carries the state of the work.
    assert "tpu.evaluate" in tasks["promotion.judge"]["upstream"]
    assert "promotion.judge" in tasks["promotion.approve"]["upstream"]
    assert "promotion.approve" in tasks["promotion.export"]["upstream"]
    assert "promotion.export" in tasks["promotion.promote"]["upstream"]
    downstream_of_delete = [n for n, task in tasks.items() if "tpu.delete" in task["upstream"]]
    assert downstream_of_delete == []
    assert not any(name.startswith("promotion.") for name in tasks["tpu.delete"]["upstream"])


WITH_THE_LINEAGE = (
    *("lineage.import", "lineage.plan", "lineage.probe_data"),
    *(f"tpu.{name}" for name in ("reserve", "create", "train", "evaluate", "probe")),
    *(f"promotion.{name}" for name in ("judge", "approve", "export", "promote")),
)


def test_the_lineage_is_given_back_whatever_fails(parsed: dict[str, Any]) -> None:
    tasks = parsed["dags"]["bert_repretraining"]["tasks"]
    release = tasks["promotion.release"]
    assert release["is_teardown"]
    # All of them, so that it runs as soon as the last of the work is over.
    assert release["upstream"] == ["lineage.claim", "promotion.promote"]
    # It fails when the run has: what a person skipped must not make a run green.
    assert release["fails_run"]
    downstream = [n for n, task in tasks.items() if "promotion.release" in task["upstream"]]
    assert downstream == []


def test_each_tpu_of_a_fine_tuning_run_is_given_back_whatever_fails(
    parsed: dict[str, Any],
) -> None:
    tasks = parsed["dags"]["bert_finetuning"]["tasks"]
    assert tasks["tpu.delete"]["is_teardown"]
    assert tasks["tpu.delete"]["fails_run"]
    assert tasks["tpu.delete"]["retries"] >= 5
    setups = {name for name, task in tasks.items() if task["is_setup"]}
    assert setups == {"tpu.reserve", "tpu.create"} <= set(tasks["tpu.delete"]["upstream"])
    # All four in one group, of which there is one for each TPU: each has its own teardown.
    mapped = {name for name, task in tasks.items() if task["is_mapped"]}
    assert mapped == {"prepare", *(f"tpu.{name}" for name in RENTED)}
    # Nothing is rented before the plan says for what; the leaf carries the state of the work.
    assert tasks["tpu.reserve"]["upstream"] == ["plan"]
    assert "tpu.finetune" in tasks["report"]["upstream"]
    assert [name for name, task in tasks.items() if "tpu.delete" in task["upstream"]] == []
    for name in ("tpu.create", "tpu.finetune"):
        assert tasks[name]["retries"] >= 20, name


RENTED = ("reserve", "create", "finetune", "delete")


def test_fine_tuning_reads_like_its_picture(parsed: dict[str, Any]) -> None:
    tasks = parsed["dags"]["bert_finetuning"]["tasks"]
    upstream = {name: set(task["upstream"]) - {"validate"} for name, task in tasks.items()}
    assert upstream["prepare"] == set()
    assert upstream["plan"] == {"prepare"}
    assert upstream["report"] == {"tpu.finetune"}
    assert upstream["export"] == {"plan", "report"}
    assert upstream["compress"] == {"plan", "report", "export"}
    work = {"prepare", "tpu.finetune", "report", "export", "compress", "predict"}
    assert upstream["end"] == work
    assert tasks["end"]["is_teardown"]
    assert tasks["end"]["fails_run"]
    assert tasks["end"]["setups"] == []
    assert upstream["predict"] == {"plan"}
    picture = parsed["dags"]["bert_finetuning"]["doc"]
    for name in tasks:
        assert name.removeprefix("tpu.") in picture


@pytest.mark.parametrize("name", WITH_THE_LINEAGE)
def test_what_trains_or_promotes_is_not_run_without_the_lineage(
    parsed: dict[str, Any], name: str
) -> None:
    task = parsed["dags"]["bert_repretraining"]["tasks"][name]
    # Airflow lets no task begin before the setups of its scope have succeeded, directly upstream or
    # not, and clears them with it; but for setups, which spend nothing by themselves.
    assert "lineage.claim" in task["setups"]
    if not task["is_setup"]:
        assert {"lineage.claim", "promotion.release"} <= set(task["cleared_with"])


def test_many_runs_prepare_and_none_trains_without_the_others_knowing(
    parsed: dict[str, Any],
) -> None:
    dag = parsed["dags"]["bert_repretraining"]
    assert dag["max_active_runs"] == 16
    assert dag["tasks"]["data.prepare"]["max_active"] == 2
    # Waiting for the lineage needs no TPU and no prepared data of others.
    assert dag["tasks"]["lineage.claim"]["upstream"] == ["data.prepare"]
    assert dag["tasks"]["tpu.reserve"]["upstream"] == ["lineage.plan", "lineage.probe_data"]


def test_what_is_skipped_without_labelled_tasks_skips_nothing_else(
    parsed: dict[str, Any],
) -> None:
    dag = parsed["dags"]["bert_repretraining"]
    upstream = {name: set(task["upstream"]) for name, task in dag["tasks"].items()}
    # All that these two wait for is skipped together with the plan, but for the probes: whatever is
    # never skipped would count as the one success, and a run without a plan would rent a TPU.
    assert upstream["tpu.reserve"] == {"lineage.plan", "lineage.probe_data"}
    assert upstream["promotion.judge"] == {"tpu.evaluate", "tpu.probe"}
    lenient = {
        name
        for name, task in dag["tasks"].items()
        if task["trigger_rule"] not in {"all_success", "all_done_setup_success"}
    }
    assert lenient == {"tpu.reserve", "promotion.judge"}
    for name in lenient:
        assert dag["tasks"][name]["trigger_rule"] == "none_failed_min_one_success"
    # Bad labelled text is refused before a TPU is rented; the TPU outlives the probe.
    assert "lineage.plan" in upstream["lineage.probe_data"]
    assert upstream["tpu.probe"] == {"lineage.probe_data", "tpu.evaluate"}
    assert "tpu.probe" in upstream["tpu.delete"]


def test_the_picture_has_every_task(parsed: dict[str, Any]) -> None:
    dag = parsed["dags"]["bert_repretraining"]
    picture = dag["doc"].partition("\n* **Starts**")[0]
    for name in dag["tasks"]:
        assert f"{name.rpartition('.')[2]} " in picture.replace("\n", " "), name


def test_a_promoted_model_is_an_event(parsed: dict[str, Any]) -> None:
    tasks = parsed["dags"]["bert_repretraining"]["tasks"]
    assert tasks["promotion.promote"]["outlets"] == ["promoted_model"]


def test_what_tasks_take_from_others(parsed: dict[str, Any]) -> None:
    """Whoever may trigger may change XComs: no task reads, runs or rents what one says."""
    takes = {
        f"{dag_id}.{name}": task["takes"]
        for dag_id, dag in parsed["dags"].items()
        for name, task in dag["tasks"].items()
        if task["takes"]
    }
    assert takes == {
        # Refused unless it is one of the run's own: tests/plugins/test_changed_xcoms.py.
        "bert_finetuning.prepare": ["mapped over: validate[return_value]"],
        # The names of the runs to start, and a request, which their first task checks as any other.
        "corpus_arrivals.start": ["trigger_run_id: receive[run_id]"],
        "corpus_arrivals.remember": ["run_id: receive[run_id]"],
        "promoted_models.start": ["conf: receive[conf]", "trigger_run_id: receive[run_id]"],
    }


def test_failures_are_told(parsed: dict[str, Any]) -> None:
    for dag_id, dag in parsed["dags"].items():
        tells = [dag["tells"], all(task["tells"] for task in dag["tasks"].values())]
        assert any(tells), dag_id
    for dag_id in ("bert_repretraining", "bert_finetuning"):
        dag = parsed["dags"][dag_id]
        assert dag["tells"]
        assert all(task["tells"] for task in dag["tasks"].values())


def test_main_dag_can_be_backfilled(parsed: dict[str, Any]) -> None:
    assert parsed["dags"]["bert_repretraining"]["can_backfill"]


def _form(dag_id: str) -> tuple[list[str], dict[str, Any]]:
    from pipeline_config import (
        FinetuningConfig,
        PipelineConfig,
        load_finetuning_preset,
        load_preset,
    )
    from pipeline_config.loading import fields
    from pipeline_config.requests import locked_settings

    schema, preset = (
        (FinetuningConfig, load_finetuning_preset("finetuning_base_v5e"))
        if dag_id == "bert_finetuning"
        else (PipelineConfig, load_preset("bert_base_v5e"))
    )
    locked = locked_settings(schema, [])
    names = [name for name, _ in fields(schema) if name not in locked]
    return names, preset.model_dump(mode="json")


@pytest.mark.parametrize("dag_id", ["bert_repretraining", "bert_finetuning"])
def test_the_form_has_every_setting_that_a_request_may_change(
    parsed: dict[str, Any], dag_id: str
) -> None:
    params = parsed["dags"][dag_id]["params"]
    names, defaults = _form(dag_id)
    assert sorted(params) == sorted(names)
    for name, value in params.items():
        section, field = name.split(".")
        assert value == defaults[section][field], name
