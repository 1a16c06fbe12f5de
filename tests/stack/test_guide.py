"""Every command of the operating guide runs, as it is written there."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from local.stack.paths import REPOSITORY
from model_registry import registry
from pipeline_store.formats import ReaperPass
from pipeline_store.layout import StoreLayout
from tests.model_registry.runs import FinishedRun
from tests.stack.driver import DAG_ID, Pipeline

pytestmark = [pytest.mark.stack, pytest.mark.thorough]

GUIDE = REPOSITORY / "docs" / "operate" / "operation.md"
PLACEHOLDER = "v-0a1b2c3d4e5f"


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> StoreLayout:
    """Return a store with two versions, of which the second is in use."""
    store = StoreLayout(str(tmp_path_factory.mktemp("guide")))
    parent = None
    for name in ("1", "2"):
        run = FinishedRun(store.root, name, parent=parent)
        version = registry.publish(store, run.run)
        registry.promote(run.lineage, version.version_id, expected_baseline=parent, reason="better")
        parent = version.version_id
    return store


def _in_environment(words: list[str]) -> list[str]:
    """Return a command line with this environment's Python."""
    program = ["-m", "airflow"] if words[0] == "airflow" else []
    return [sys.executable, *program, *words[1:]]


def test_all_commands_run(pipeline: Pipeline, store: StoreLayout) -> None:
    first = registry.list_versions(store.lineage("default"))[0].version_id
    ReaperPass(
        owner="repretraining",
        project_id="local-project",
        finished=datetime.now(UTC),
        host="here",
        seen=0,
        acted_on=0,
        problems=[],
    ).write(store.reaper_pass("repretraining", "local-project"))
    airflow = pipeline.stack.environment()
    known = {run.run_id for run in pipeline.api.runs(DAG_ID)}
    failures = []
    for words in commands():
        assert words[0] in {"airflow", "python"}, words
        environment = airflow | (
            {} if words[0] == "airflow" else {"REPRETRAIN_STORE_URI": store.root}
        )
        line = [first if word == PLACEHOLDER else word for word in _in_environment(words)]
        done = subprocess.run(
            line, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
        )
        if done.returncode:
            failures.append(f"{shlex.join(words)}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    assert failures == []
    in_use = registry.production(store.lineage("default"))
    assert in_use is not None
    assert in_use.version_id == first
    [dry_run] = [r.run_id for r in pipeline.api.runs(DAG_ID) if r.run_id not in known]
    state, tasks = pipeline.finish(dry_run)
    assert state == "success"
    assert set(tasks.values()) == {"skipped"}
