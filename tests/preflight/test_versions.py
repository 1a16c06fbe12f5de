"""Versions that this project needs, and those that its files name."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

import pytest
from packaging.version import Version

from pipeline_config import load_preset, with_overrides
from preflight.cloud.reports import documentation
from preflight.cloud.versions import (
    GUARANTEES,
    PYTHON,
    airflow_finding,
    installed_airflow,
    python_finding,
)
from preflight.estimates.prices import price_finding
from preflight.findings import Status

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_python_is_that_of_the_requirements() -> None:
    assert PROJECT["project"]["requires-python"] == f"=={PYTHON[0]}.{PYTHON[1]}.*"
    assert python_finding().status is Status.OK
    finding = python_finding((3, 12))
    assert finding.status is Status.FAILED
    assert finding.fix == "make install PYTHON=python3.11"


def test_the_locked_airflow_gives_every_guarantee() -> None:
    [pinned] = [
        line
        for line in PROJECT["dependency-groups"]["orchestrator"]
        if line.startswith("apache-airflow==")
    ]
    version = pinned.partition("==")[2]
    assert installed_airflow() == version
    assert airflow_finding(version).status is Status.OK
    assert airflow_finding("4.0.0").status is Status.OK


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=lambda guarantee: guarantee.what)
def test_each_guarantee_is_lost_just_before_its_version(guarantee: tuple[str, str]) -> None:
    since, what = guarantee
    assert what not in airflow_finding(since).found
    major, minor, _ = Version(since).release
    finding = airflow_finding(f"{major}.{minor - 1}.9")
    assert finding.status is Status.FAILED
    assert what in finding.found
    assert "apache-airflow>=3.3.0" in finding.fix


def test_a_candidate_of_a_release_counts_as_the_release() -> None:
    assert airflow_finding("3.3.0rc1").status is Status.OK


@pytest.mark.parametrize("version", [None, "unknown"])
def test_a_version_that_nobody_knows(version: str | None) -> None:
    assert airflow_finding(version).status is Status.NOT_CHECKED


@pytest.mark.parametrize(
    ("day", "status"),
    [
        ("2026-11-22", Status.OK),
        ("2026-11", Status.OK),
        ("2026-11-23", Status.FAILED),
        ("2026-12", Status.FAILED),
        ("2026-02-30", Status.FAILED),
        ("2026-05-26", Status.OK),
        ("2026-05-25", Status.WARNING),
        # Of a month its last day counts.
        ("2026-05", Status.OK),
        ("2026-04", Status.WARNING),
    ],
)
def test_the_age_of_a_price(day: str, status: Status) -> None:
    config = with_overrides(load_preset("smoke"), {"budget.price_date": day})
    finding = price_finding(config, date(2026, 11, 22))
    assert finding.status is status
    assert ("--set budget.price_date=2026-11-22" in finding.fix) == (status is not Status.OK)


def test_the_documentation_has_the_table_of_all_checks() -> None:
    page = (ROOT / "docs" / "operate" / "preflight.md").read_text()
    table = documentation()
    assert table in page, f"docs/operate/preflight.md needs this table:\n{table}"
