"""Runs a command-line module of this repository as a task, in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from hooks.notes import about_run, leave_note, short_reason
from operators.failures import PipelineFailure, PipelineRetry
from operators.hidden_files import Right
from operators.own_run import own_run
from pipeline_alerts.causes import Remedy
from pipeline_config.settings import is_private, load_settings
from pipeline_store import request_paths, uris
from pipeline_store.formats import ExitKind, RunRecord
from pipeline_store.layout import StoreLayout
from pipeline_store.request_paths import RequestRoots
from preflight.request import request_roots

if TYPE_CHECKING:
    from airflow.sdk import Context

REPOSITORY = str(Path(__file__).parents[2])
GUARD = str(Path(__file__).with_name("process_guard.py"))
HIDER = str(Path(__file__).with_name("hidden_files.py"))
GRACE_SECONDS = 20.0
"""Time between asking a module to stop and killing it: longer than canceling a cloud job takes."""


@dataclass(frozen=True)
class ModuleRun:
    """A module that has run, with its start and end time."""

    module: str
    began: datetime
    ended: datetime


class PythonModuleOperator(BaseOperator):
    """Runs ``python -m <module> <arguments>`` and returns the JSON object it prints last.

    This keeps heavy libraries (Beam) out of the worker's process, and the module is the same one
    that a user runs by hand. Its stderr appears in the task log line by line, its summary as a
    table. A user error or bad data fails the task for good; any other failure may be retried.

    No process of the module outlives the task, however the task ends: see
    :mod:`operators.process_guard`.

    The module may read those files named by the run's request that are below the roots of
    :func:`preflight.request.request_roots`. The kernel denies it the files in
    ``REPRETRAIN_HIDDEN_PATHS``: see :mod:`operators.hidden_files`.

    :param module: name of the module, such as ``beam_jobs.prepare_corpus``.
    :param store_uri: root of the store.
    :param arguments: its command line; operators that know it only when they run override
        :meth:`command_line` instead.
    """

    def __init__(
        self, *, module: str, store_uri: str, arguments: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(multiple_outputs=True, **kwargs)
        self.module = module
        self.store_uri = store_uri
        self.arguments = arguments
        self.ran: list[ModuleRun] = []
        self._process: subprocess.Popen[bytes] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the module to its end."""
        command_line, began = self.command_line(context), datetime.now(UTC)
        # A file, not a pipe, which would have to be read concurrently with the log.
        with tempfile.TemporaryFile() as printed:
            try:
                code, last_words = self._run(command_line, printed, context)
            finally:
                self.ran.append(ModuleRun(self.module, began, datetime.now(UTC)))
            printed.seek(0)
            lines = printed.read().decode(errors="backslashreplace").splitlines()
        for line in lines[:-1]:
            self.log.info("%s", line)
        try:
            summary = self._summary(code, lines[-1] if lines else "", last_words)
        except PipelineFailure as error:
            # No later task may run to write the note; if one does, it replaces this text.
            failed = short_reason(f"Failed: {error}")
            leave_note(context, " ".join([failed, *self._about_run(context)]))
            raise
        for line in summary_lines(summary):
            self.log.info("%s", line)
        return summary

    def command_line(self, context: Context) -> list[str]:
        """Return the module's arguments."""
        return list(self.arguments)

    def heard(self, line: str, context: Context) -> None:
        """Handle a line that the module has just logged; the default does nothing."""

    def on_kill(self) -> None:
        """Make the guard end the module and its children, as it also does if this process dies."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _run(self, arguments: list[str], printed: IO[bytes], context: Context) -> tuple[int, str]:
        """Run the module and log its stderr; return its exit code and its last line there."""
        command = [sys.executable, "-m", self.module, *arguments]
        self.log.info("Running %s", " ".join(command))
        read_end, write_end = os.pipe()
        last_words = ""
        with os.fdopen(read_end, errors="backslashreplace") as said:
            try:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", GUARD, str(GRACE_SECONDS), *self._hiding(), *command],
                    stdin=subprocess.PIPE,
                    stdout=printed,
                    stderr=write_end,
                    # A module that was asked to stop may still write after this process is gone.
                    pass_fds=[read_end],
                    cwd=REPOSITORY,
                    env=self._environment(),
                    start_new_session=True,
                )
            finally:
                os.close(write_end)
            try:
                for line in said:
                    if last := line.rstrip():
                        last_words = last
                        self.log.info("%s", last)
                        self.heard(last, context)
            except BaseException:
                self.on_kill()
                raise
        code = self._process.wait()
        self.on_kill()
        return code, last_words

    def _summary(self, code: int, last_line: str, last_words: str) -> dict[str, Any]:
        """Return the module's summary, from its last line on stdout.

        :raises PipelineFailure: the module reported an error in the request or the data.
        :raises PipelineRetry: the module reported a problem of this machine.
        :raises AirflowException: it failed otherwise; its last line may contain corpus text.
        """
        kind = ExitKind.from_exit_code(code)
        beginning, _, own_words = last_words.partition(f"{kind}: ")
        if kind in (ExitKind.USER_ERROR, ExitKind.BAD_DATA):
            # With these codes a module ends on an error of its own, which quotes no file content.
            said = own_words or last_words
            raise PipelineFailure(Remedy.MEND_INPUT, f"{self.module}: {kind}: {said}")
        if kind is ExitKind.FAILED and beginning == f"{self.module.rpartition('.')[2]}: ":
            # A machine problem. Unexpected errors end with a traceback, without this prefix.
            raise PipelineRetry(Remedy.MEND_AND_CLEAR, f"{self.module}: {own_words}")
        if kind is not ExitKind.OK:
            raise AirflowException(
                f"{self.module} ended with exit code {code} ({kind}): {last_words}"
            )
        try:
            summary = json.loads(last_line)
        except ValueError:
            summary = None
        if not isinstance(summary, dict):
            raise AirflowException(
                f"{self.module} did its work, but its last line is not its summary: "
                f"{last_line!r}. Trying again repeats nothing that is done."
            )
        return summary

    def _about_run(self, context: Context) -> list[str]:
        record = RunRecord.load_or_none(own_run(context, self.store_uri).record)
        return [about_run(record.partition, record.lineage_id)] if record is not None else []

    def hidden_paths(self) -> Sequence[str]:
        """Return the paths that the module must not be able to read."""
        return load_settings().hidden_paths

    def _hiding(self) -> list[str]:
        """Return the prefix of the module's command that hides files from it; empty: none."""
        hidden = self.hidden_paths()
        if not hidden:
            return []
        rights = dict.fromkeys(hidden, Right.HIDDEN)
        # Code that Airflow runs is read-only: who can change it can read all that Airflow can.
        rights |= dict.fromkeys((REPOSITORY, sys.prefix, sys.base_prefix), Right.READ)
        credentials = os.environ.get("GOOGLE_APPLICATION_CREDENTIALS", "")
        given = [uris.for_library(root) for root in (*self._roots().roots, credentials) if root]
        store = [] if uris.is_cloud(self.store_uri) else [uris.for_library(self.store_uri)]
        rights |= {
            path: Right.READ
            for path in given
            if _lies_below(path, hidden) and not _lies_below(path, store)
        }
        rights |= dict.fromkeys(store, Right.WRITE)
        return [sys.executable, "-I", HIDER, json.dumps(rights)]

    def _roots(self) -> RequestRoots:
        return request_roots(load_settings(), StoreLayout(self.store_uri))

    def _environment(self) -> dict[str, str]:
        # The jobs need no secrets, of Airflow or others, so they do not get them.
        kept = {name: value for name, value in os.environ.items() if not is_private(name)}
        own = {"PYTHONPATH": REPOSITORY, "PYTHONUNBUFFERED": "1"}
        return kept | own | request_paths.variables(self._roots())


def _lies_below(path: str, folders: Sequence[str]) -> bool:
    return any(Path(path).resolve().is_relative_to(Path(one).resolve()) for one in folders)


def summary_lines(summary: dict[str, Any]) -> list[str]:
    """Return a module's summary as a table for people: a line per value."""
    rows = list(_rows(summary, ()))
    width = max((len(name) for name, _ in rows), default=0)
    return [f"{name:<{width}}  {value}" for name, value in rows]


def _rows(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _rows(item, (*path, str(name)))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield " ".join(path), f"{value:,}"
    elif isinstance(value, list | dict):
        yield " ".join(path), ", ".join(map(str, value)) or "none"
    else:
        yield " ".join(path), str(value)
