"""Settings of an installation, read from the environment. The only module that reads it for us.

Unlike :class:`pipeline_config.PipelineConfig` these do not differ from run to run.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Settings:
    """Where this installation keeps its data and what its form starts from.

    The environment variable of each is ``REPRETRAIN_`` and its name in capitals.
    """

    store_uri: str = field(
        metadata={"help": "the store: an absolute folder or `gs://BUCKET/PREFIX`"}
    )
    preset: str = field(
        metadata={"help": "what form and scheduled runs start from: a preset or a `.toml` file"}
    )
    schedule: str = field(metadata={"help": "cron expression of the periodic runs, UTC"})
    gcp_conn_id: str = field(metadata={"help": "Airflow connection to Google Cloud"})
    owner: str = field(metadata={"help": "owner of the DAGs, and label of the TPUs"})


def load_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the installation's settings; every one has a default that parses without a cloud."""
    return Settings(
        store_uri=environment.get("REPRETRAIN_STORE_URI", os.path.expanduser("~/repretraining")),
        preset=environment.get("REPRETRAIN_PRESET", "bert_base_v5e"),
        schedule=environment.get("REPRETRAIN_SCHEDULE", "0 0 * * *"),
        gcp_conn_id=environment.get("REPRETRAIN_GCP_CONN_ID", "google_cloud_default"),
        owner=environment.get("REPRETRAIN_OWNER", "repretraining"),
    )
