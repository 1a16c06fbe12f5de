"""What has to happen before any test module is imported."""

from __future__ import annotations

import os
import tempfile

import pytest

# So that a failed assertion in the tests' own helpers shows its values, too.
pytest.register_assert_rewrite("tests")

# Airflow reads these when it is first imported. Importing it here, rather than in the middle of
# the collection, keeps its log handlers off a stream that pytest closes after each module.
os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="airflow-"))
os.environ.setdefault("AIRFLOW__CORE__LOAD_EXAMPLES", "false")

import airflow.sdk  # noqa: E402, F401
