"""What has to happen before any test module is imported."""

from __future__ import annotations

import atexit
import gc
import math
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from tests import sharing

# What is imported and collected lives as long as the process, and is millions of objects: looking
# through them for garbage took half of the collection's time and a fifth of that of a training.
gc.disable()

BEGAN = time.monotonic()

# On a busy machine an example can take any time, and drawing it as well: that is no failure.
hypothesis.settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("any machine")

# So that a failed assertion in the tests' own helpers shows its values, too.
helpers = [path for path in Path(__file__).parent.iterdir() if path.is_dir()]
pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in helpers))

# Nothing that a test writes has to survive a power cut, and the disk makes each sync wait for those
# of all other processes. The tests that are about syncing put their own in its place.
os.fsync = lambda _descriptor: None

# Airflow reads these when it is first imported, which is left to the folders whose tests need it.
# There it happens in conftest.py, as pytest captures nothing while it reads that: log handlers that
# are made while a test module is imported, or a test runs, would keep a stream of pytest's.
if "AIRFLOW_HOME" not in os.environ:
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "false")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what :mod:`tests.sharing` is told."""
    parser.addoption(
        "--store-durations", action="store_true", help="write tests/durations.json from this run"
    )
    parser.addoption(
        "--thorough-within",
        type=float,
        default=math.inf,
        metavar="MINUTES",
        help="begin no thorough test later than this; the summary names those that are left out",
    )


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name bytes by their number: compressed ones may hold the time, and each process collects."""
    return f"{len(val)}_bytes" if isinstance(val, bytes) else None


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> sharing.ByFile:
    """Share out by file."""
    return sharing.ByFile(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what would begin too late."""
    minutes = (time.monotonic() - BEGAN) / 60
    sharing.leave_out_late(item.keywords, minutes, item.config.getoption("--thorough-within"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest, so that no process is left alone with it at the end."""
    sharing.sort(items, sharing.load())


def pytest_collection_finish() -> None:
    """Look for garbage again, in what tests make, at longer intervals than Python's own."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say where the time went."""
    reports = [r for found in terminalreporter.stats.values() for r in found]
    found = sharing.measured(r for r in reports if isinstance(r, pytest.TestReport))
    if len(found) > 1:
        terminalreporter.section("durations by folder")
        for line in sharing.table(found):
            terminalreporter.write_line(line)
    if config.getoption("--store-durations"):
        sharing.store({part: sum(found[part]) for part in found}, config.rootpath)
