"""The arguments of ``python -m preflight cloud``, without the libraries that it needs."""

from __future__ import annotations

import argparse

from pipeline_config.settings import load_settings
from preflight.cloud.airflow_api import TOKEN


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Add what this command needs besides the configuration."""
    command.add_argument("--project", required=True, help="of Google Cloud")
    command.add_argument(
        "--store",
        metavar="URI",
        default=load_settings().store_uri,
        help="gs://BUCKET/PREFIX (default: %(default)s)",
    )
    command.add_argument(
        "--airflow-url",
        metavar="URL",
        help="Airflow's address, if it is not installed here; what it has of connections it tells "
        f"whoever has a token in {TOKEN}",
    )
    command.add_argument("--json", action="store_true", help="print JSON instead of a table")
    command.add_argument("--endpoint", help="of the TPU API, such as unix:/run/tpu/api.sock")
    command.add_argument(
        "--insecure",
        action="store_true",
        help="the TPU API takes no TLS and no credentials: an emulator",
    )
