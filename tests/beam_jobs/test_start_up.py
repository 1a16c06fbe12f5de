"""What a command imports of Beam before it works, and how its process ends."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from beam_jobs.job import start_up
from beam_jobs.job.start_up import import_beam
from beam_jobs.train_vocabulary import ensure_vocabulary
from pipeline_store.formats import PartitionManifest
from pipeline_store.layout import StoreLayout
from tests.beam_jobs.workspace import PARTITION, Workspace, as_text, documents, make_config

REPOSITORY = Path(__file__).parents[2]


def test_a_command_on_this_machine_imports_no_client_of_a_cloud(
    workspace: Workspace, tmp_path: Path
) -> None:
    workspace.put("a.txt", as_text(documents(30)))
    expected = workspace.record_hashes(workspace.prepare().manifest)
    vocabulary = workspace.store.lineage("default").vocabulary
    workspace.store = StoreLayout(str(tmp_path / "other"))
    workspace.config = make_config(vocabulary__uri=vocabulary)
    workspace.put("a.txt", as_text(documents(30)))
    ensure_vocabulary(workspace.arguments)
    config = tmp_path / "config.json"
    config.write_bytes(workspace.config.to_bytes())
    command = [sys.executable, "-X", "importtime", "-m", "beam_jobs.prepare_corpus"]
    command += [f"--config={config}", f"--store={workspace.store.root}", f"--partition={PARTITION}"]
    done = subprocess.run(
        command,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line for line in done.stderr.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert "apache_beam.runners.portability.fn_api_runner" in imported
    # Modules deep inside, as the names that Beam asks for are listed even if they are not found.
    assert not imported & {
        "apitools.base.py.base_api",
        "google.auth.credentials",
        "google.cloud.bigquery.client",
        "google.cloud.storage.client",
        "pandas.core.api",
    }
    # The last line arrives, although the process ends at once.
    summary = json.loads(done.stdout.splitlines()[-1])
    manifest = PartitionManifest.load(summary["manifest"])
    assert workspace.record_hashes(manifest) == expected


@pytest.mark.parametrize(
    ("runner", "options", "is_local"),
    [
        ("FnApiRunner", [], True),
        ("FnApiRunner", ["--temp_location=gs://bucket/folder"], False),
        ("DataflowRunner", [], False),
    ],
)
def test_beam_is_whole_where_it_may_run_elsewhere(
    runner: str, options: list[str], is_local: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(start_up, "import_local_beam", lambda: calls.append(runner))
    import_beam(runner, options)
    assert bool(calls) is is_local


def test_what_is_hidden_can_be_imported_afterwards() -> None:
    before = list(sys.meta_path)
    with start_up._hidden_from_imports(), pytest.raises(ModuleNotFoundError, match="left out"):
        importlib.import_module("google.cloud.no_such_module")
    assert sys.meta_path == before
