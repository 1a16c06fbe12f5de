"""``python -m preflight cloud``: checks a whole installation in Google Cloud, spending nothing."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

import google.auth
from google.auth.credentials import Credentials

from pipeline_config import PipelineConfig
from pipeline_config.settings import load_settings
from pipeline_store.layout import StoreLayout
from preflight.cloud.airflow_api import connection_lookup
from preflight.cloud.apis import SCOPES, GoogleApis
from preflight.cloud.catalogue import (
    ACCOUNT_CHECKS,
    AIRFLOW_CHECK,
    INSTALLATION_CHECKS,
    STORE_CHECKS,
    TPU_CHECKS,
    Installation,
    make,
)
from preflight.cloud.reports import as_json, table
from preflight.cloud.site import Site
from preflight.findings import Status
from tpu_lifecycle.service import connecting
from tpu_lifecycle.service.backend import TpuBackend


def check_cloud(config: PipelineConfig, options: argparse.Namespace) -> int:
    """Make all checks and print their findings; return 1 if one failed, else 0."""
    installation = Installation(
        config=config,
        settings=load_settings(),
        lookup=connection_lookup(options.airflow_url),
        today=datetime.now(UTC).date(),
    )
    apis = GoogleApis(options.project, _default_credentials)
    site = Site(config, StoreLayout(options.store), apis, lambda: _backend(options, apis))
    rows = [*make([AIRFLOW_CHECK], options.airflow_url), *make(INSTALLATION_CHECKS, installation)]
    for checks in (ACCOUNT_CHECKS, STORE_CHECKS, TPU_CHECKS):
        rows += make(checks, site)
    sys.stdout.write(as_json(options.project, rows) if options.json else table(rows))
    return int(any(row.finding.status is Status.FAILED for row in rows))


def _default_credentials() -> Credentials:
    credentials, _ = google.auth.default(scopes=SCOPES)
    return credentials


def _backend(options: argparse.Namespace, apis: GoogleApis) -> TpuBackend:
    return connecting.connect(
        project_id=options.project,
        endpoint=options.endpoint,
        insecure=options.insecure,
        credentials=None if options.insecure else apis.credentials,
        role="preflight",
    )
