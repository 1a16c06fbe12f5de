"""Runs a command-line module of this repository as a task, in a process of its own."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.hooks.subprocess import SubprocessHook
from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from pipeline_store.formats import ExitKind

if TYPE_CHECKING:
    from airflow.sdk import Context

REPOSITORY = str(Path(__file__).parents[2])


class PythonModuleOperator(BaseOperator):
    """Runs ``python -m <module> <arguments>`` and returns the JSON object it prints last.

    Heavy libraries (Beam) so stay out of the worker's process, the module is the same one a user
    runs by hand, and its output appears in the task log line by line. A user error or bad data
    fails the task for good; any other failure may be retried.

    :param module: such as ``beam_jobs.prepare_corpus``.
    :param arguments: its command line. (templated)
    """

    template_fields: Sequence[str] = ("arguments",)

    def __init__(self, *, module: str, arguments: Any, **kwargs: Any) -> None:
        super().__init__(multiple_outputs=True, **kwargs)
        self.module = module
        self.arguments = arguments
        self._process: SubprocessHook | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the module to its end."""
        self._process = SubprocessHook()
        result = self._process.run_command(
            [sys.executable, "-m", self.module, *self.arguments],
            env=self._environment(),
            cwd=REPOSITORY,
        )
        kind = ExitKind.from_exit_code(result.exit_code)
        if kind in (ExitKind.USER_ERROR, ExitKind.BAD_DATA):
            raise AirflowFailException(f"{self.module}: {kind}: {result.output}")
        if kind is not ExitKind.OK:
            raise AirflowException(
                f"{self.module} ended with exit code {result.exit_code} ({kind}): {result.output}"
            )
        try:
            summary: dict[str, Any] = json.loads(result.output)
        except ValueError as error:
            raise AirflowException(
                f"{self.module} did its work, but its last line is not its summary: "
                f"{result.output!r}. Trying again repeats nothing that is done."
            ) from error
        return summary

    def on_kill(self) -> None:
        """End the module's whole process group."""
        if self._process is not None:
            self._process.send_sigterm()

    @staticmethod
    def _environment() -> dict[str, str]:
        # The jobs do not need Airflow's secrets, so they do not get them.
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("AIRFLOW", "_AIRFLOW"))}
        return kept | {"PYTHONPATH": REPOSITORY, "PYTHONUNBUFFERED": "1"}
