"""One who may trigger runs and wants files of the worker, and one who reads the logs for them."""

from __future__ import annotations

import configparser
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.stack.airflow_api import AirflowApi
from tests.attacks import MARK, REFUSED, Outside
from tests.stack.driver import RUN_SECONDS, Pipeline

TRIGGERS, READS = "user", "viewer"


@dataclass(frozen=True)
class Thief:
    """Two people of the roles ``user`` and ``viewer``.

    :ivar tasks: what of each labelled task of an attack is to be refused.
    """

    pipeline: Pipeline
    outside: Outside
    tasks: dict[str, str]
    user: AirflowApi
    viewer: AirflowApi

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files with secrets of this installation."""
        return self.pipeline.stack.paths.passwords, self.pipeline.stack.paths.airflow_config

    def refusals(self, dag_id: str, run_id: str) -> list[str]:
        """Return the log of a run that has to fail in its first task."""
        ended = self.user.wait_for_run(dag_id, run_id, seconds=RUN_SECONDS)
        log = self.viewer.task_log(dag_id, run_id, "validate")
        assert ended.state == "failed", log
        return log.splitlines()

    def assert_tasks_are_refused(self, dag_id: str, runs: Mapping[str, Any]) -> None:
        """Check runs that were asked for labelled tasks: each is refused by its name.

        :param runs: what they were asked, by id.
        """
        for run_id, conf in runs.items():
            [(setting, names)] = conf.items()
            lines = self.refusals(dag_id, run_id)
            for name in names:
                beginning = f" {setting}: task '{name}': {self.tasks[name]}"
                assert is_refused(lines, beginning), (name, lines)

    def assert_nothing_is_seen(self) -> None:
        """Check all that was logged and stored for what stands in the files."""
        secrets = list(self._secrets())
        seen = {secret for text in self._written() for secret in secrets if secret in text}
        assert seen == set()

    def _secrets(self) -> Iterator[str]:
        passwords, config = self.files
        keys = configparser.ConfigParser(interpolation=None)
        keys.read(config)
        yield MARK
        yield from json.loads(passwords.read_text()).values()
        for section in keys.sections():
            yield from keys[section].values()

    def _written(self) -> Iterator[str]:
        for folder in (self.outside.store, self.pipeline.stack.paths.airflow_home / "logs"):
            for path in folder.rglob("*"):
                if path.is_file() and not path.is_symlink():
                    yield f"{path.relative_to(folder)} {path.read_bytes().decode(errors='replace')}"


def is_refused(lines: list[str], beginning: str, why: re.Pattern[str] = REFUSED) -> bool:
    """Return whether a line of a log refuses something."""
    return any(beginning in line and why.search(line) for line in lines)


@contextmanager
def thief_of(pipeline: Pipeline) -> Iterator[Thief]:
    """Yield a thief, with links and labelled tasks in the store that go when it is gone."""
    paths = pipeline.stack.paths
    passwords = json.loads(paths.passwords.read_text())
    user, viewer = (
        AirflowApi(pipeline.api.base_url, name, passwords[name]) for name in (TRIGGERS, READS)
    )
    outside = Outside.plant(Path(pipeline.store.root), paths.root / "elsewhere")
    tasks = Path(pipeline.store.tasks)
    try:
        with user, viewer:
            yield Thief(pipeline, outside, outside.write_tasks(tasks), user, viewer)
    finally:
        for link in (*outside.links, *tasks.glob("attack-*")):
            link.unlink() if link.is_symlink() else shutil.rmtree(link)
        shutil.rmtree(outside.file.parent)
