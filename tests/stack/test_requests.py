"""Whoever may trigger runs, and nothing else, gets no file of the worker to see."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.stack.airflow_api import AirflowApi
from tests.stack.driver import DAG_ID, RUN_SECONDS, TINY, Pipeline

TRIGGERS, READS = "user", "viewer"


@pytest.fixture(scope="module")
def users(pipeline: Pipeline) -> dict[str, AirflowApi]:
    """Return clients of people of two roles: one may trigger, one may read logs."""
    passwords = json.loads(pipeline.stack.paths.passwords.read_text())
    return {
        name: AirflowApi(pipeline.api.base_url, name, passwords[name]) for name in (TRIGGERS, READS)
    }


@pytest.fixture(scope="module")
def secrets(pipeline: Pipeline) -> dict[Path, bytes]:
    """Return files of the worker that no request may read, with what must not be seen of them."""
    paths = pipeline.stack.paths
    elsewhere = paths.root / "elsewhere.csv"
    elsewhere.write_text("id,zq7secretcolumn\n1,zq7secretvalue\n")
    link = Path(pipeline.store.root) / "corpus" / "linked" / "a.csv"
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    password = json.loads(paths.passwords.read_text())["admin"].encode()
    return {
        paths.passwords: password,
        paths.airflow_config: b"jwt_secret",
        elsewhere: b"zq7secret",
        link: b"zq7secret",
        Path("/proc/self/environ"): b"AIRFLOW__",
    }


def requests(pipeline: Pipeline, secrets: dict[Path, bytes]) -> Iterator[dict[str, Any]]:
    """Yield a request for each way to name each file, and for other lineages' runs."""
    table = {"corpus.input_format": "csv"}
    for path in secrets:
        yield table | {"corpus.input_pattern": str(path)}
    for path in list(secrets)[:2]:
        yield table | {"corpus.input_pattern": f"corpus/x/*,{path}"}
        yield {"vocabulary.uri": str(path)}
        yield {"model.init_checkpoint": str(path)}
    store = pipeline.store.root
    yield {"corpus.input_pattern": f"{store}/corpus/../../airflow/*"}
    yield {"corpus.input_pattern": f"{os.path.dirname(store)}/*/passwords.json"}
    yield {"corpus.input_pattern": "runs/*/config.json"}
    yield {"model.init_checkpoint": "runs/0123456789ab/training"}
    yield {"tpu.container_image": f"registry/image@sha256:{'0' * 64}"}


@pytest.mark.thorough
def test_who_may_trigger_reads_no_file_of_the_worker(
    pipeline: Pipeline, users: dict[str, AirflowApi], secrets: dict[Path, bytes]
) -> None:
    user, viewer = users[TRIGGERS], users[READS]
    before, runs = pipeline.calls("CreateQueuedResource"), {}
    for number, conf in enumerate(requests(pipeline, secrets)):
        chosen = {"corpus.partition": "linked", "model.lineage_id": f"thief-{number}"}
        runs[user.trigger(DAG_ID, TINY | chosen | conf)] = conf
    logs = []
    for run_id, conf in runs.items():
        ended = user.wait_for_run(DAG_ID, run_id, seconds=RUN_SECONDS)
        assert ended.state == "failed", conf
        log = viewer.task_log(DAG_ID, run_id, "validate")
        # Refused by the setting's name.
        assert any(f"{name}: " in log for name in conf), (conf, log)
        logs.append(log)
    assert pipeline.calls("CreateQueuedResource") == before
    seen = [*logs, *_written(pipeline)]
    for path, secret in secrets.items():
        assert not any(secret.decode() in text for text in seen), path


def _written(pipeline: Pipeline) -> Iterator[str]:
    """Yield all that tasks have logged and stored."""
    for folder in (Path(pipeline.store.root), pipeline.stack.paths.airflow_home / "logs"):
        for path in folder.rglob("*"):
            if path.is_file() and not path.is_symlink():
                yield path.read_bytes().decode(errors="replace")
