"""Parts that monitor the stack from outside Airflow: metrics exporter, Prometheus, Alertmanager."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from local.stack.parts import Part, Tier, python_module
from local.stack.paths import StatePaths
from local.stack.ports import HOST
from local.stack.settings import ALERTMANAGER, METRICS, PROMETHEUS
from pipeline_config.settings import Settings
from pipeline_metrics import files

PROGRAMS = {PROMETHEUS: "prometheus", ALERTMANAGER: "prometheus-alertmanager"}
"""Debian's names of the programs by part; its packages have the same names."""


def missing_programs() -> list[str]:
    """Return the programs that this machine does not have."""
    return [name for name in PROGRAMS.values() if shutil.which(name) is None]


def observers() -> tuple[str, ...]:
    """Return the parts that can run on this machine: all, or the exporter alone."""
    return (METRICS,) if missing_programs() else (METRICS, PROMETHEUS, ALERTMANAGER)


def observer_parts(paths: StatePaths, ports: Mapping[str, int]) -> tuple[Part, ...]:
    """Return the parts that have a port, in start order; none if the stack is not observed."""
    words = {
        METRICS: python_module(
            "pipeline_metrics",
            "serve",
            *("--store", str(paths.store)),
            *("--host", HOST),
            *("--port", str(ports.get(METRICS))),
        ),
        PROMETHEUS: (
            shutil.which(PROGRAMS[PROMETHEUS]) or PROGRAMS[PROMETHEUS],
            f"--config.file={paths.observation / 'prometheus.yaml'}",
            f"--storage.tsdb.path={paths.observation / 'tsdb'}",
            f"--web.listen-address={HOST}:{ports.get(PROMETHEUS)}",
        ),
        ALERTMANAGER: (
            shutil.which(PROGRAMS[ALERTMANAGER]) or PROGRAMS[ALERTMANAGER],
            f"--config.file={files.FOLDER / 'alertmanager.yaml'}",
            f"--storage.path={paths.observation / 'alertmanager'}",
            f"--web.listen-address={HOST}:{ports.get(ALERTMANAGER)}",
            # It has no peers; with this set it would listen for them on every interface.
            "--cluster.listen-address=",
        ),
    }
    return tuple(
        Part(name=name, command=command, tier=Tier.SERVICES)
        for name, command in words.items()
        if name in ports
    )


def configure(paths: StatePaths, ports: Mapping[str, int], settings: Settings) -> None:
    """Write Prometheus' files: the team server's configuration with these ports, and the rules."""
    paths.observation.mkdir(exist_ok=True, mode=0o700)
    for _ in files.write(paths.observation, settings):
        pass
    content = prometheus_config(f"{HOST}:{ports[METRICS]}", f"{HOST}:{ports[ALERTMANAGER]}")
    (paths.observation / "prometheus.yaml").write_text(json.dumps(content, indent=2))


def prometheus_config(exporter: str, alertmanager: str) -> dict[str, Any]:
    """Return the team server's Prometheus configuration with the given addresses."""
    kept: Path = files.FOLDER / "prometheus.yaml"
    content: dict[str, Any] = yaml.safe_load(kept.read_text())
    [job] = content["scrape_configs"]
    job["static_configs"] = [{"targets": [exporter]}]
    [manager] = content["alerting"]["alertmanagers"]
    manager["static_configs"] = [{"targets": [alertmanager]}]
    return content
