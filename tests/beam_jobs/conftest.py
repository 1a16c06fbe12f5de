from __future__ import annotations

from pathlib import Path

import pytest

from pipeline_store.layout import StoreLayout
from tests.beam_jobs.workspace import Workspace, make_config


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(StoreLayout(str(tmp_path / "store")), make_config())
