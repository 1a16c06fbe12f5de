"""Each request for a file that none may read is refused by name, however its run was started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from corpus.errors import UserError
from operators.finetuning import ValidateFinetuningOperator
from operators.validate import ValidateRunOperator
from pipeline_config import FinetuningConfig, PipelineConfig
from pipeline_config.settings import load_settings
from pipeline_store import request_paths
from pipeline_store.layout import StoreLayout
from preflight.request import request_roots
from preflight.run.finetuning import predict_files
from tests import attacks
from tests.attacks import MARK, REFUSED, Outside
from tests.plugins.driver import CONN_ID, connect
from tests.plugins.test_repretraining import promoted
from tests.tpu_lifecycle.world import World

# All ways in which Airflow starts a run; each has its conf in the same place.
RUN_TYPES = ("manual", "backfill", "asset_triggered", "scheduled")
KINDS: dict[Any, tuple[type[ValidateRunOperator | ValidateFinetuningOperator], str]] = {
    PipelineConfig: (ValidateRunOperator, "smoke"),
    FinetuningConfig: (ValidateFinetuningOperator, "finetuning_smoke"),
}


@pytest.fixture
def outside(tmp_path: Path, world: World, monkeypatch: pytest.MonkeyPatch) -> Outside:
    connect(world, monkeypatch)
    store = tmp_path / "store"
    (store / "corpus" / "day-1").mkdir(parents=True)
    (store / "corpus" / "day-1" / "a.txt").write_text("A document.\n")
    return Outside.plant(store, tmp_path / "elsewhere")


def refusal(
    outside: Outside, schema: Any, conf: Mapping[str, Any], run_type: str = "manual"
) -> list[str]:
    """Validate a request, which has to be refused; return why, in lines."""
    operator, preset = KINDS[schema]
    dag_run = SimpleNamespace(
        dag_id="dag",
        run_id=f"{run_type}__1",
        run_type=run_type,
        conf=dict(conf),
        triggering_user_name="mallory",
        partition_key="day-1",
    )
    context: Any = {"dag_run": dag_run}
    task = operator(
        task_id="validate", store_uri=str(outside.store), preset=preset, gcp_conn_id=CONN_ID
    )
    with pytest.raises(AirflowFailException) as refused:
        task.execute(context)
    return str(refused.value).splitlines()


def test_every_marked_setting_is_attacked() -> None:
    assert attacks.unattacked() == set()


@pytest.mark.parametrize("run_type", RUN_TYPES)
def test_paths(outside: Outside, run_type: str, capfd: pytest.CaptureFixture[str]) -> None:
    for conf in outside.requests(PipelineConfig):
        lines = refusal(outside, PipelineConfig, conf, run_type)
        for name in conf:
            assert any(line.startswith(f"{name}: ") and REFUSED.search(line) for line in lines), (
                conf
            )
        assert MARK not in "".join((*lines, *capfd.readouterr()))


@pytest.mark.parametrize("schema", KINDS)
def test_what_only_the_installation_sets(outside: Outside, schema: Any) -> None:
    conf = attacks.installation_settings(schema)
    lines = refusal(outside, schema, conf)
    for name in conf:
        assert any(line.startswith(f"{name}: only the installation sets") for line in lines), name


@pytest.mark.parametrize("schema", KINDS)
def test_labelled_tasks(outside: Outside, schema: Any, capfd: pytest.CaptureFixture[str]) -> None:
    promoted(str(outside.store), "1")
    written = outside.write_tasks(outside.store / "tasks")
    asked = 0
    for conf in attacks.task_requests(schema, list(written)):
        lines = refusal(outside, schema, conf)
        [(setting, names)] = conf.items()
        for name in names:
            asked += 1
            wanted = f"{setting}: task '{name}': {written[name]}"
            assert any(line.startswith(wanted) and REFUSED.search(line) for line in lines), name
        assert MARK not in "".join((*lines, *capfd.readouterr()))
    assert asked == len(written)


def test_files_to_predict(outside: Outside) -> None:
    """In its mode a run looks for no other files of a task, and looks for them once more."""
    written = outside.write_tasks(outside.store / "tasks")
    store = StoreLayout(str(outside.store))
    with request_paths.limited_to(request_roots(load_settings(), store)):
        for name in (name for name, setting in written.items() if setting == "predict: "):
            with pytest.raises(UserError, match=REFUSED):
                predict_files(store, name)
