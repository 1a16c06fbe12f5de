"""Makes a pass of the mirror for each line that it is given: importing MLflow takes longest."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import sys

from pipeline_mirror import mlflow_server
from pipeline_mirror.__main__ import main

assert mlflow_server


def make(arguments: list[str], settings: dict[str, str]) -> dict[str, object]:
    """Return the exit code of a pass and what it said."""
    os.environ.update(settings)
    # As in a new process, what is logged goes to where errors go now.
    logging.getLogger().handlers.clear()
    said = io.StringIO()
    # MLflow prints addresses of runs.
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = main(arguments)
    return {"code": code, "said": said.getvalue()}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(make(**json.loads(line))), flush=True)
