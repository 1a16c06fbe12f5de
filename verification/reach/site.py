"""Locations of the things that a job may try, which anyone who knows the project can guess."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Site:
    """An installation, as paths and addresses.

    :ivar database: address without a password.
    :ivar sockets: the TPU emulator's and the supervisor's, of a local stack.
    """

    airflow_home: str
    passwords: str
    database: str
    database_files: str
    api: str
    sockets: tuple[str, ...]
    store: str

    @classmethod
    def of(cls, environment: Mapping[str, str] = os.environ) -> Site:
        """Return the installation whose Airflow has this environment."""
        home = environment["AIRFLOW_HOME"]
        connection = json.loads(environment.get("AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT", "{}"))
        endpoint = str(connection.get("extra", {}).get("tpu_api_endpoint", ""))
        emulator = endpoint.removeprefix("unix:") if endpoint.startswith("unix:") else ""
        # A local stack has all of its sockets in one folder.
        folder = os.path.dirname(emulator)
        api = environment["AIRFLOW__CORE__EXECUTION_API_SERVER_URL"]
        is_server = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN_CMD" in environment
        database = "@postgres:5432/airflow" if is_server else f"@/postgres?host={folder}/postgres"
        return cls(
            airflow_home=home,
            # On a server the administrator's password; all others are hashes in the database.
            passwords=environment.get(
                "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", "/run/secrets/logins"
            ),
            database=f"postgresql://airflow{database}",
            database_files=os.path.join(os.path.dirname(home), "postgres", "data"),
            api=api.removesuffix("/execution/"),
            sockets=(emulator, os.path.join(folder, "supervisor.sock")),
            store=environment["REPRETRAIN_STORE_URI"],
        )

    def to_json(self) -> str:
        """Return the site as a command's argument."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Site:
        """Return the site in a command's argument."""
        return cls(**json.loads(text))
