"""The export as a task: when it is skipped, and what it asks the command for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from operators.export_model import ExportModelOperator
from operators.python_module import PythonModuleOperator
from pipeline_config import PipelineConfig
from tests.model_registry.runs import FinishedRun
from tests.plugins.contexts import of_finished
from training import export_model
from trigger_form import trigger_form


def operator(run: FinishedRun) -> ExportModelOperator:
    return ExportModelOperator(task_id="export", store_uri=run.store.root)


def test_a_rejected_candidate_is_not_exported(tmp_path: Path) -> None:
    run = FinishedRun(str(tmp_path), "1", gain=-0.5)
    with pytest.raises(AirflowSkipException, match="Nothing to publish: On 40 held-out"):
        operator(run).execute(of_finished(run))


def test_the_candidate_is_exported_to_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FinishedRun(str(tmp_path), "1")
    asked: list[Any] = []

    def execute(task: PythonModuleOperator, context: Any) -> dict[str, Any]:
        asked.append(export_model.parser().parse_args(task.command_line(context)))
        return {"exports": run.run.exports.record}

    monkeypatch.setattr(PythonModuleOperator, "execute", execute)
    assert operator(run).execute(of_finished(run)) == {
        "exports": f"{run.run.root}/exports/exports.json"
    }
    [arguments] = asked
    assert arguments.model == run.run.training.root
    assert arguments.config == run.run.config
    assert f"{arguments.output}/exports.json" == run.run.exports.record
    # The formats are the configuration's.
    assert (arguments.formats, arguments.dry_run) == (None, False)


def test_the_form_offers_the_formats_to_choose_from() -> None:
    form = trigger_form(PipelineConfig())
    param = form["promotion.export_formats"]
    assert param.value == ["hugging_face", "saved_model"]
    assert param.schema["examples"] == ["hugging_face", "saved_model"]
    # Free text stays one line per item.
    assert "examples" not in form["tpu.zones"].schema
