"""Migrates the database to the installed Airflow's schema, unless that is known to be done.

Copy-paste, in a shell set up by ``python -m local.stack env``:
``python -m local.stack.migration --done-file /tmp/done``
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path


def main(argv: list[str] | None = None) -> int:
    """Migrate if needed; return Airflow's exit code.

    Airflow itself takes several seconds at every start to find that there is nothing to do, so the
    version is recorded once the migration is done.
    """
    parser = argparse.ArgumentParser(prog="python -m local.stack.migration", description=__doc__)
    parser.add_argument("--done-file", type=Path, required=True, help="where the version is noted")
    done: Path = parser.parse_args(argv).done_file
    installed = version("apache-airflow-core")
    if done.exists() and done.read_text() == installed:
        print(f"The database has the schema of Airflow {installed} already.")
        return 0
    code = subprocess.run([sys.executable, "-P", "-m", "airflow", "db", "migrate"], check=False)
    if code.returncode == 0:
        done.write_text(installed)
    return code.returncode


if __name__ == "__main__":
    sys.exit(main())
