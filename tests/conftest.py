"""What has to happen before any test module is imported."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

# So that a failed assertion in the tests' own helpers shows its values, too.
helpers = [path for path in Path(__file__).parent.iterdir() if path.is_dir()]
pytest.register_assert_rewrite(*(f"tests.{path.name}" for path in helpers))

# Airflow reads these when it is first imported. Importing it here, rather than in the middle of
# the collection, keeps its log handlers off a stream that pytest closes after each module.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-"))
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "false")

import airflow.sdk  # noqa: E402, F401
