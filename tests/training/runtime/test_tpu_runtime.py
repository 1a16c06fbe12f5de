"""TensorFlow is told of the chips before it is imported, and of those only that it may take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.training.corpora import TinyStore, tiny_config
from tests.training.jobs import ROOT, train_arguments
from training.runtime import slices

PLUGIN = "/opt/libtpu/libtpu.so"
NAMES = (
    *("PJRT_DEVICE", "NEXT_PLUGGABLE_DEVICE_USE_C_API", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH"),
    *("TPU_LOAD_LIBRARY", "TF_CONFIG"),
)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        # Set first, so that whatever the test leaves is taken away in the end.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)


@pytest.fixture
def libtpu(monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("libtpu")
    monkeypatch.setattr(library, "get_library_path", lambda: PLUGIN, raising=False)
    monkeypatch.setitem(sys.modules, "libtpu", library)


def told() -> dict[str, str]:
    return {name: os.environ[name] for name in NAMES if name in os.environ}


@pytest.mark.parametrize("kind", ["v5litepod-8", "v5p-8", "v6e-4"])
@pytest.mark.usefixtures("libtpu")
def test_later_tpus_are_a_plugin(kind: str) -> None:
    slices.use_chips(kind)
    assert told() == {
        "PJRT_DEVICE": "TPU",
        "NEXT_PLUGGABLE_DEVICE_USE_C_API": "true",
        "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": PLUGIN,
    }


@pytest.mark.parametrize("kind", ["v2-8", "v3-8", "v4-8"])
@pytest.mark.usefixtures("libtpu")
def test_earlier_ones_are_not(kind: str) -> None:
    slices.use_chips(kind)
    assert told() == {}


def test_without_libtpu_nothing_is_said() -> None:
    slices.use_chips("v5litepod-8")
    assert told() == {}


@pytest.mark.usefixtures("libtpu")
def test_a_job_takes_chips_only_if_it_trains_on_them_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slices.prepare(tiny_config())
    assert told() == {}
    on_tpu = tiny_config(training__distribution_strategy="tpu")
    slices.prepare(on_tpu)
    assert told()["TF_PLUGGABLE_DEVICE_LIBRARY_PATH"] == PLUGIN

    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    workers = {"worker": ["10.0.0.1:20000", "10.0.0.2:20001"]}
    task = {"type": "worker", "index": 0}
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": workers, "task": task}))
    slices.prepare(on_tpu)
    del os.environ["TF_CONFIG"]
    assert told() == {"TPU_LOAD_LIBRARY": "0"}


def test_the_trainer_says_it_before_tensorflow_is_imported(tmp_path: Path) -> None:
    # TensorFlow loads the plugin as it is imported, and fails here, where there is none.
    (tmp_path / "libtpu.py").write_text(f"def get_library_path(): return {PLUGIN!r}\n")
    store = TinyStore.create(tmp_path / "store")
    manifest = store.partition("2026-01-01")
    run = store.run("r", tiny_config(training__distribution_strategy="tpu"))
    result = subprocess.run(
        [sys.executable, "-m", "training.train", *train_arguments(store, run, manifest)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode != 0
    assert PLUGIN in result.stdout
