"""What the official PostgreSQL image does when it starts, with the same variables.

https://github.com/docker-library/docs/blob/master/postgres/README.md
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def main() -> None:
    data = Path(os.environ["PGDATA"])
    if not (data / "PG_VERSION").exists():
        subprocess.run(
            [
                "initdb",
                f"--pgdata={data}",
                f"--username={os.environ['POSTGRES_USER']}",
                f"--pwfile={os.environ['POSTGRES_PASSWORD_FILE']}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--locale=C",
            ],
            check=True,
        )
        with (data / "pg_hba.conf").open("a") as file:
            file.write("host all all all scram-sha-256\n")
        subprocess.run(
            ["postgres", "--single", "-D", str(data), "postgres"],
            input=f'CREATE DATABASE "{os.environ["POSTGRES_DB"]}"\n',
            text=True,
            check=True,
        )
    sockets = "/var/run/postgresql"
    command = ["postgres", "-D", str(data), "-k", sockets, "-c", "listen_addresses=*"]
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
