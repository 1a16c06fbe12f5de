"""A real Prometheus and a real Alertmanager that watch an exporter, all on free ports."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from local.stack.observation import PROGRAMS as INSTALLED
from local.stack.observation import prometheus_config
from local.stack.ports import choose
from pipeline_config.settings import load_settings
from pipeline_metrics import files
from pipeline_metrics.rules import rule_file

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-observe" / "bin" / "python"
PROGRAMS = (*INSTALLED.values(), "promtool", "amtool")
PATIENCE = 60.0
EXPORTER, PROMETHEUS, ALERTMANAGER = "exporter", "prometheus", "alertmanager"


def why_not() -> str:
    """Return what this machine lacks; empty: nothing."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        return (
            f"no {', '.join(missing)} here: apt-get install prometheus prometheus-alertmanager "
            "(Debian), or put the programs on the PATH"
        )
    return "" if PYTHON.exists() else "no .venv-observe here: make observe-check makes it"


@dataclass
class Servers:
    """The three, and what can be asked of them."""

    folder: Path
    store: str
    ports: dict[str, int] = field(
        default_factory=lambda: choose((EXPORTER, PROMETHEUS, ALERTMANAGER), {})
    )
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def query(self, expression: str) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        answer = self._get(
            PROMETHEUS, f"/api/v1/query?{urllib.parse.urlencode({'query': expression})}"
        )
        rows: list[dict[str, Any]] = answer["data"]["result"]
        return rows

    def firing(self) -> set[str]:
        """Return the rules that Alertmanager has told somebody of and that are not over."""
        return {alert["labels"]["alertname"] for alert in self._get(ALERTMANAGER, "/api/v2/alerts")}

    def start(self, name: str) -> None:
        """Start one of them."""
        log = (self.folder / f"{name}.log").open("ab")
        self.running[name] = subprocess.Popen(
            self._command(name), cwd=ROOT, stdout=log, stderr=subprocess.STDOUT
        )

    def stop(self, name: str) -> None:
        """Kill one of them."""
        process = self.running.pop(name)
        process.kill()
        process.wait()

    def until(self, what: Callable[[], Any], is_good: Callable[[Any], bool]) -> Any:
        """Ask until the answer is good."""
        deadline, found = time.monotonic() + PATIENCE, None
        while time.monotonic() < deadline:
            try:
                found = what()
            except (OSError, urllib.error.URLError):
                found = None  # not up yet
            else:
                if is_good(found):
                    return found
            time.sleep(0.3)
        logs = [path.read_text()[-1000:] for path in self.folder.glob("*.log")]
        raise AssertionError(f"after {PATIENCE:g} s: {found}; {logs}")

    def _get(self, name: str, path: str) -> Any:
        address = f"http://127.0.0.1:{self.ports[name]}{path}"
        with urllib.request.urlopen(address, timeout=10) as answer:
            return json.load(answer)

    def _command(self, name: str) -> list[str]:
        listen = f"127.0.0.1:{self.ports[name]}"
        if name == EXPORTER:
            words = ["serve", "--store", self.store, "--port", str(self.ports[name])]
            return [str(PYTHON), "-m", "pipeline_metrics", *words, "--max-age-seconds", "0"]
        if name == PROMETHEUS:
            return [
                "prometheus",
                f"--config.file={self.folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={self.folder / 'tsdb'}",
                f"--web.listen-address={listen}",
            ]
        return [
            "prometheus-alertmanager",
            f"--config.file={files.FOLDER / 'alertmanager.yaml'}",
            f"--storage.path={self.folder / 'alertmanager'}",
            f"--web.listen-address={listen}",
            "--cluster.listen-address=",
        ]


@contextmanager
def serving(folder: Path, store: str) -> Iterator[Servers]:
    """Run the three on a store. Rules hold at once, and everybody looks each second."""
    servers = Servers(folder, store)
    with ExitStack() as stack:
        for name in (EXPORTER, ALERTMANAGER, PROMETHEUS):
            stack.callback(lambda one=name: one in servers.running and servers.stop(one))
        _configure(servers)
        for name in (EXPORTER, ALERTMANAGER, PROMETHEUS):
            servers.start(name)
        servers.until(lambda: servers.query("up == 1"), bool)
        yield servers


def _configure(servers: Servers) -> None:
    content = rule_file(load_settings({}))
    for rule in content["groups"][0]["rules"]:
        rule["for"] = "0s"
        rule.pop("keep_firing_for", None)
    (servers.folder / files.RULES).write_text(yaml.safe_dump(content))
    hosts = {name: f"127.0.0.1:{port}" for name, port in servers.ports.items()}
    kept = prometheus_config(hosts[EXPORTER], hosts[ALERTMANAGER])
    kept["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    [job] = kept["scrape_configs"]
    del job["scrape_interval"]
    del job["scrape_timeout"]
    (servers.folder / "prometheus.yaml").write_text(yaml.safe_dump(kept))


def run(*command: str | os.PathLike[str], stdin: str = "") -> str:
    """Run a program to its end, and return what it printed; it must not fail."""
    done = subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        input=stdin,
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def metrics_of(store: str) -> str:
    """Return one scrape, by the command in the environment that has nothing but its needs."""
    return run(PYTHON, "-m", "pipeline_metrics", "print", "--store", store)
