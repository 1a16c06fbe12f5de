"""The skeleton of the page on new objectives, trained by the real trainer."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from local.stack.paths import REPOSITORY
from pipeline_store.formats import TrainingInputs, TrainingResult
from pipeline_store.layout import StoreLayout, TrainingLayout
from tests.training.conftest import replicas
from tests.training.corpora import tiny_config
from trained_models.checkpoint_store import CheckpointStore
from trained_models.commit import CommitGuard
from trained_models.errors import PreemptedError
from training.loop.trainer import Trainer, TrainingJob
from training.runtime.job import StopRequest

PAGE = REPOSITORY / "docs" / "extend" / "new-objective.md"
BLOCK = re.compile(r"^```python skeleton\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CONFIG = tiny_config()


@pytest.fixture(scope="module")
def skeleton(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    (code,) = BLOCK.findall(PAGE.read_text())
    # A file: TensorFlow reads the source of what it compiles.
    path = tmp_path_factory.mktemp("skeleton") / "next_token.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Annotations of a data class are looked up where its module is known.
    sys.modules[module.__name__] = module
    spec.loader.exec_module(module)
    return module


def rows() -> Any:
    """Return rows in which each token is followed by the next higher one."""
    starts = np.random.default_rng(1).integers(5, 200, 32)
    return (starts[:, None] + np.arange(16)).astype(np.int32)


class StopAfter(StopRequest):
    """Asks to stop at the second loop of steps."""

    def __init__(self) -> None:
        super().__init__()
        self._loops = 0

    @property
    def requested(self) -> bool:
        self._loops += 1
        return self._loops > 1


def train(skeleton: ModuleType, folder: Path, stop: StopRequest, count: int = 1) -> TrainingResult:
    layout: TrainingLayout = StoreLayout(str(folder)).run("run").training
    guard = CommitGuard("test", None)
    inputs = TrainingInputs(settings={}, vocabulary_sha256="0" * 64, records={})
    data_sha256 = hashlib.sha256(inputs.to_bytes()).hexdigest()
    store = CheckpointStore(layout, guard, CONFIG, inputs=inputs, data_sha256=data_sha256)
    objective = skeleton.NextToken(CONFIG, rows())
    job = TrainingJob(CONFIG, layout, guard, objective, inputs, store)
    return Trainer(job, replicas(count)).train(stop)


def test_it_learns_and_goes_on_where_it_stopped(skeleton: ModuleType, tmp_path: Path) -> None:
    whole = train(skeleton, tmp_path / "whole", StopRequest())
    with pytest.raises(PreemptedError):
        train(skeleton, tmp_path / "stopped", StopAfter())
    resumed = train(skeleton, tmp_path / "stopped", StopRequest())
    assert resumed.resumed_from == [2]
    assert resumed.weights_sha256 == whole.weights_sha256
    assert whole.steps_done == CONFIG.training.steps
    assert whole.final_loss < np.log(CONFIG.model.vocab_size)


def test_two_replicas_train_as_one_does(skeleton: ModuleType, tmp_path: Path) -> None:
    one = train(skeleton, tmp_path / "one", StopRequest())
    two = train(skeleton, tmp_path / "two", StopRequest(), 2)
    assert two.final_loss == pytest.approx(one.final_loss, rel=1e-4)
