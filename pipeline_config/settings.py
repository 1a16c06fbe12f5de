"""Settings of an installation, read from the environment. The only module that reads it for us.

Unlike :class:`pipeline_config.PipelineConfig` these do not differ from run to run.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Where this installation keeps its data and what its form starts from."""

    store_uri: str
    preset: str
    schedule: str
    gcp_conn_id: str
    owner: str


def load_settings() -> Settings:
    """Return the installation's settings; every one has a default that parses without a cloud."""
    environment = os.environ
    return Settings(
        store_uri=environment.get("REPRETRAIN_STORE_URI", os.path.expanduser("~/repretraining")),
        preset=environment.get("REPRETRAIN_PRESET", "bert_base_v5e"),
        schedule=environment.get("REPRETRAIN_SCHEDULE", "0 3 * * *"),
        gcp_conn_id=environment.get("REPRETRAIN_GCP_CONN_ID", "google_cloud_default"),
        owner=environment.get("REPRETRAIN_OWNER", "repretraining"),
    )
