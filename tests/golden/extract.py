"""Collects every name that outlives a program: ``python -m tests.golden.extract FILE``.

Stores, Airflow's database, people's configurations and scripts hold these names. None of them is
the name of a module or class of ours, but for what Airflow or a user calls by it: triggers,
buttons, commands. For :mod:`tests.golden.write` and the test; both start it as a process.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tests.golden import airflow_names, command_names, stored_names


def names() -> dict[str, Any]:
    """Return all sections."""
    triggers = airflow_names.triggers()
    return {
        "asset events": airflow_names.asset_events(),
        "commands": command_names.commands(airflow_names.entry_points()),
        "conf": airflow_names.params(),
        "enumerations": stored_names.enumerations(),
        "environment": stored_names.environment(),
        "exit codes": stored_names.exit_codes(),
        "formats": stored_names.formats(),
        "identities": stored_names.identities(),
        "make": command_names.make_targets(),
        "pages": airflow_names.pages(),
        "resumed methods": airflow_names.resumes(),
        "settings": stored_names.settings(),
        "store": stored_names.places(),
        "tasks": airflow_names.task_names(),
        "tpu": stored_names.tpu_names(),
        "trigger events": airflow_names.trigger_events(),
        "trigger samples": triggers,
        "triggers": {path: sorted(arguments) for path, arguments in triggers.items()},
        "xcom": airflow_names.xcoms(),
    }


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(names()))
