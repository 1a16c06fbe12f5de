"""The promoted candidate in other formats, as a task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowSkipException

from operators.python_module import PythonModuleOperator
from pipeline_store.formats import Verdict, VerdictKind
from pipeline_store.layout import RunLayout

if TYPE_CHECKING:
    from airflow.sdk import Context


class ExportModelOperator(PythonModuleOperator):
    """Writes a run's candidate in the formats of ``promotion.export_formats`` and checks them.

    Skipped when the verdict is a rejection. TensorFlow runs in a process of its own, on the
    worker's CPU: some minutes and a few times the model's size in memory.

    Returns the job's summary: the folder of each format and how far it is from the model.

    :param store_uri: root of the store.
    :param run_uri: folder of the run. (templated)
    :param baseline: version id that the candidate was compared with, or None. (templated)
    """

    template_fields: Sequence[str] = ("run_uri", "baseline")

    def __init__(self, *, store_uri: str, run_uri: Any, baseline: Any, **kwargs: Any) -> None:
        super().__init__(
            module="training.export_model", store_uri=store_uri, arguments=[], **kwargs
        )
        self.run_uri = run_uri
        self.baseline = baseline

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the export, if the candidate is to be published."""
        verdict = Verdict.load(RunLayout(self.run_uri).verdict(self.baseline))
        if verdict.verdict is not VerdictKind.PROMOTED:
            raise AirflowSkipException(f"Nothing to publish: {verdict.reason}")
        return super().execute(context)

    def command_line(self, context: Context) -> list[str]:
        """Return the module's arguments."""
        run = RunLayout(self.run_uri)
        source = ["--model", run.training.root, "--config", run.config]
        return [*source, "--store", self.store_uri, "--output", run.exports.root]
