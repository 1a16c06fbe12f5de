"""Attacks by people who may only trigger runs: by form input, and by self-approval."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from airflow.sdk.exceptions import AirflowFailException

from operators import approval
from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    PipelineConfig,
    load_finetuning_preset,
    load_preset,
    requests,
    with_overrides,
)
from pipeline_config.settings import load_settings
from pipeline_store.formats import Answer, RunApproval
from pipeline_store.layout import StoreLayout
from pipeline_store.request_paths import RequestRoots
from preflight.request import outside_problems, request_roots
from tests import attacks
from tests.model_registry.runs import CONFIG, FinishedRun
from verification.attack_check.rows import Row, Tally

_PRESETS: dict[Any, Any] = {
    PipelineConfig: lambda: load_preset("smoke"),
    FinetuningConfig: lambda: load_finetuning_preset("finetuning_smoke"),
}
_SECRET_FILES = ("/etc/shadow", "/run/secrets/jwt_secret", "/proc/self/environ", "/proc/1/cwd/*")
_APPROVERS = ("ada", "grace")
_ANSWERS = tuple(
    itertools.product(("ada", "mallory", "Ada", "grace "), ("manual", "operator_triggered"))
)
"""People who answer a question about ada's run, and the run's type; none may approve."""


@contextmanager
def _installation(store: Path) -> Iterator[None]:
    """Make a store that of the installation, with nothing else that requests may read."""
    store.mkdir(exist_ok=True)
    values = {"REPRETRAIN_STORE_URI": str(store), "REPRETRAIN_PRESET": "smoke"}
    with mock.patch.dict(os.environ, values):
        yield


def files(folder: Path, times: int) -> Tally:
    """Name files of the worker in every setting that takes paths, in various spellings."""
    tally, store = Tally(), folder / "store"
    with _installation(store):
        outside = attacks.Outside.plant(store, folder / "elsewhere")
        secrets = map(Path, _SECRET_FILES)
        asked = [
            (schema, {name: path})
            for schema in _PRESETS
            for conf in outside.requests(schema, *secrets)
            for name, path in conf.items()
        ]
        for schema, conf in asked * times:
            layout = StoreLayout(str(store))
            found = ""
            try:
                config = requests.with_request(_PRESETS[schema](), conf, ())
                roots = request_roots(load_settings(), layout)
                found = "\n".join(outside_problems(config, roots, layout))
            except ConfigError as error:
                found = str(error)
            [(name, path)] = conf.items()
            is_refused = re.search(attacks.REFUSED, found) is not None and name in found
            tally.add(
                *([] if is_refused else [f"{name} may be {path}"]),
                *(["the file is quoted"] if attacks.MARK in found else []),
            )
    return tally


@contextmanager
def _anywhere() -> Iterator[None]:
    """Let requests name any path."""
    with (
        mock.patch.object(RequestRoots, "require"),
        mock.patch.object(RequestRoots, "require_pattern"),
    ):
        yield


def settings(_: Path, times: int) -> Tally:
    """Request other images, accounts, networks, disks and prices than the installation's."""
    tally = Tally()
    for schema in [*_PRESETS] * times:
        for name, value in attacks.installation_settings(schema).items():
            try:
                requests.with_request(_PRESETS[schema](), {name: value}, ())
            except ConfigError as error:
                said = f"{name}: only the installation sets this" in str(error)
                tally.add(*([] if said else [f"{name}: {error}"]))
            else:
                tally.add(f"{name} may be {value}")
    return tally


def own_approvals(folder: Path, times: int) -> Tally:
    """Approve a candidate as the person who started its run, or as an unauthorized person."""
    tally = Tally()
    with _installation(folder / "store"):
        run = FinishedRun(str(folder / "store"), "1").run
        asks = {"promotion.require_approval": True, "promotion.approvers": list(_APPROVERS)}
        config = with_overrides(CONFIG, asks)
        for number in range(times):
            name, run_type = _ANSWERS[number % len(_ANSWERS)]
            now = datetime.now(UTC)
            RunApproval(
                candidate_sha256=approval._candidate(run, None),
                baseline=None,
                answer=Answer.APPROVED,
                asked=now,
                deadline=now + timedelta(hours=1),
                answered=now,
                answered_by=name,
                answered_by_id=name,
            ).write(run.approval)
            started = SimpleNamespace(
                dag_id="dag", run_id="1", triggering_user_name="ada", run_type=run_type
            )
            missing: str | None = ""
            with suppress(AirflowFailException):
                missing = approval.missing_approval(run, config, None, started)
            tally.add(*([] if missing is not None else [f"{name!r} approves a run of ada"]))
    return tally


def _by_anybody() -> Any:
    """Accept any person's answer."""
    return mock.patch.object(approval, "_unfit_approver", return_value=None)


ROWS = (
    Row("files of the worker through the form", files, 1, _anywhere),
    Row(
        "settings of the installation through the form",
        settings,
        1,
        lambda: mock.patch.object(requests, "locked_settings", return_value=set()),
    ),
    Row("approval of one's own run", own_approvals, 16, _by_anybody, 8),
)
