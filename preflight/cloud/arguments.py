"""The arguments of ``python -m preflight cloud``, without the libraries that it needs."""

from __future__ import annotations

import argparse

from pipeline_config.settings import add_store_argument, tpu_service
from preflight.cloud.airflow_api import TOKEN


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what this command needs besides the configuration."""
    service = tpu_service()
    command.add_argument(
        "--project",
        default=service.project_id,
        help="of Google Cloud; default: GOOGLE_CLOUD_PROJECT, else that of Airflow's connection, "
        "if a variable has it",
    )
    add_store_argument(command)
    command.add_argument(
        "--airflow-url",
        metavar="URL",
        help="Airflow's address, if it is not installed here; what it has of connections it tells "
        f"whoever has a token in {TOKEN}",
    )
    command.add_argument("--json", action="store_true", help="print JSON instead of a table")
    command.add_argument(
        "--endpoint",
        default=service.endpoint,
        help="of the TPU API, such as unix:/run/tpu/api.sock; default: as for --project",
    )
    command.add_argument(
        "--insecure",
        action="store_true",
        default=service.insecure,
        help="the TPU API takes no TLS and no credentials: an emulator",
    )
