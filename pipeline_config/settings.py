"""Settings of an installation, read from environment variables only in this module.

Unlike :class:`pipeline_config.PipelineConfig` these do not differ from run to run.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pipeline_config.loading import ConfigError

_SECRET_NAME = re.compile(
    r"PASSW|PASSPHRASE|(^|_)PASS($|_)|_PWD$|SECRET|TOKENS?($|_)|FERNET"
    r"|(^|_)(API|ACCESS|PRIVATE)?KEYS?($|_)"
    r"|OTLP_([A-Z]+_)?HEADERS$",  # trace receivers take their tokens from these headers
    re.IGNORECASE,
)

_LOGIN = re.compile(r"([a-z+]+://)?[^/]*@", re.IGNORECASE)
"""A login at the beginning of an address."""

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]*\{lineage\}[\w.-]*", re.ASCII)


_ON, _OFF = {"1", "true", "yes", "on"}, {"", "0", "false", "no", "off"}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """The settings of an installation, such as its store and the preset of its form.

    The environment variable of each is ``REPRETRAIN_`` and its name in capitals.
    """

    store_uri: str = field(
        metadata={"help": "the store: an absolute folder or `gs://BUCKET/PREFIX`"}
    )
    preset: str = field(
        metadata={"help": "what form and scheduled runs start from: a preset or a `.toml` file"}
    )
    input_roots: tuple[str, ...] = field(
        metadata={
            "help": "folders, with commas, below which requests may name files: below the store, "
            "absolute, or `gs://`; what the presets name is allowed as well"
        }
    )
    hidden_paths: tuple[str, ...] = field(
        metadata={
            "help": "absolute paths, with commas, of what on the Airflow worker no data job can "
            "read: Airflow's keys and logins; see [requests.md](requests.md#what-a-job-can-reach)"
        }
    )
    locked_settings: tuple[str, ...] = field(
        metadata={
            "help": "patterns, with commas, such as `promotion.*`, of further settings that "
            "requests may not change"
        }
    )
    schedule: str = field(metadata={"help": "cron expression of the periodic runs, UTC"})
    partition_format: str = field(
        metadata={"help": "how the periodic runs name their partition, as in `strftime`"}
    )
    finetuning_preset: str = field(
        metadata={"help": "as `REPRETRAIN_PRESET`, of the DAG `bert_finetuning`"}
    )
    finetuning_schedule: str = field(
        metadata={
            "help": "cron expression, UTC, of fine-tuning runs besides those that promotions "
            "start; empty: none"
        }
    )
    gcp_conn_id: str = field(metadata={"help": "Airflow connection to Google Cloud"})
    owner: str = field(metadata={"help": "owner of the DAGs, and label of the TPUs"})
    alert_conn_ids: tuple[str, ...] = field(
        metadata={
            "help": "Airflow connections that alerts go to, with commas: of type `smtp`, "
            "`slackwebhook` or `http`; none: alerts are only logged"
        }
    )
    tensorboard_url: str = field(
        metadata={
            "help": "address, as people's browsers see it, of a TensorBoard on the store's runs, "
            "to which the pages link; empty: no links"
        }
    )
    metrics_url: str = field(
        metadata={
            "help": "address, as people's browsers see it, of a Grafana or Prometheus with the "
            "[metrics](../operate/metrics.md), to which the pages link; empty: no links"
        }
    )
    mlflow_mirror: bool = field(
        metadata={
            "help": "`1`: runs and models are mirrored in the [MLflow](../guides/sharing.md) of "
            "`MLFLOW_TRACKING_URI`, by the DAG `model_mirror`, which is there only then"
        }
    )
    mlflow_prefix: str = field(
        metadata={
            "help": "what the mirror's experiments and registered models there begin with, where "
            "several installations share a server"
        }
    )
    mlflow_url: str = field(
        metadata={
            "help": "address of that MLflow, as people's browsers see it, to which the pages link; "
            "empty: no links"
        }
    )
    hub_repository: str = field(
        metadata={
            "help": "repositories on the [Hugging Face Hub](../guides/hugging-face-hub.md) in "
            "which versions are mirrored, with `{lineage}` in place of its name, such as "
            "`acme/bert-{lineage}`; the DAG `hub_mirror` is there only then"
        }
    )
    hub_conn_id: str = field(
        metadata={
            "help": "Airflow connection whose password is the Hub's token; empty: `hub_mirror` "
            "only says what it would do"
        }
    )
    hub_license: str = field(
        metadata={
            "help": "what the models' cards there name as license, in the Hub's words, such as "
            "`apache-2.0`; empty: none"
        }
    )
    hub_url: str = field(
        metadata={
            "help": "address of that Hub, as people's browsers see it, such as "
            "`https://huggingface.co`, to which the pages link; empty: no links"
        }
    )
    traces_url: str = field(
        metadata={
            "help": "address, as people's browsers see it, of a run's "
            "[trace](../operate/lineage-and-traces.md#traces), with `{trace_id}` in place of its "
            "32 hex digits, to which the run's page links; empty: no link"
        }
    )
    openlineage_url: str = field(
        metadata={
            "help": "address, as people's browsers see it, of a dataset in the tool that gets "
            "[OpenLineage's events](../operate/lineage-and-traces.md#openlineage), with "
            "`{namespace}` and `{name}` in place of its own, to which the page *Models* links; "
            "empty: no link"
        }
    )
    docs_url: str = field(
        metadata={
            "help": "address, as people's browsers see it, of these pages as a site (`make docs`), "
            "whose runbook alerts link to, such as Airflow's own and `/repretraining/docs`; "
            "empty: alerts name the file in the repository"
        }
    )
    alert_with_text: bool = field(
        metadata={"help": "`1`: alerts may quote log lines, in which corpus text can occur"}
    )
    overdue_hours: float = field(metadata={"help": "a run that takes longer is reported"})
    quiet_days: float = field(
        metadata={"help": "so long without a new partition of the corpus is reported; 0: never"}
    )
    stalled_minutes: float = field(
        metadata={
            "help": "a run in which nothing happens for so long is reported, if by the store "
            "something should; 0: never"
        }
    )
    idle_tpu_minutes: float = field(
        metadata={"help": "a TPU that is rented for so long without a job is reported; 0: never"}
    )


def load_settings(environment: Mapping[str, str] = os.environ) -> Settings:
    """Return the installation's settings; all have defaults that need no cloud.

    :raises ConfigError: a setting would have no effect or is no valid number.
    """
    settings = Settings(
        store_uri=environment.get("REPRETRAIN_STORE_URI") or os.path.expanduser("~/repretraining"),
        preset=environment.get("REPRETRAIN_PRESET", "bert_base_v5e"),
        input_roots=_words(environment.get("REPRETRAIN_INPUT_ROOTS", "corpus,tasks,imports")),
        hidden_paths=_words(environment.get("REPRETRAIN_HIDDEN_PATHS", "")),
        locked_settings=_words(environment.get("REPRETRAIN_LOCKED_SETTINGS", "")),
        schedule=environment.get("REPRETRAIN_SCHEDULE", "0 0 * * *"),
        partition_format=environment.get("REPRETRAIN_PARTITION_FORMAT", "%Y-%m-%d"),
        finetuning_preset=environment.get("REPRETRAIN_FINETUNING_PRESET", "finetuning_base_v5e"),
        finetuning_schedule=environment.get("REPRETRAIN_FINETUNING_SCHEDULE", ""),
        gcp_conn_id=environment.get("REPRETRAIN_GCP_CONN_ID", "google_cloud_default"),
        owner=environment.get("REPRETRAIN_OWNER", "repretraining"),
        alert_conn_ids=_words(environment.get("REPRETRAIN_ALERT_CONN_IDS", "")),
        tensorboard_url=environment.get("REPRETRAIN_TENSORBOARD_URL", "").rstrip("/"),
        metrics_url=environment.get("REPRETRAIN_METRICS_URL", "").rstrip("/"),
        mlflow_mirror=_switch(environment, "REPRETRAIN_MLFLOW_MIRROR"),
        mlflow_prefix=environment.get("REPRETRAIN_MLFLOW_PREFIX", ""),
        mlflow_url=environment.get("REPRETRAIN_MLFLOW_URL", "").rstrip("/"),
        hub_repository=environment.get("REPRETRAIN_HUB_REPOSITORY", ""),
        hub_conn_id=environment.get("REPRETRAIN_HUB_CONN_ID", ""),
        hub_license=environment.get("REPRETRAIN_HUB_LICENSE", ""),
        hub_url=environment.get("REPRETRAIN_HUB_URL", "").rstrip("/"),
        traces_url=environment.get("REPRETRAIN_TRACES_URL", ""),
        openlineage_url=environment.get("REPRETRAIN_OPENLINEAGE_URL", ""),
        docs_url=environment.get("REPRETRAIN_DOCS_URL", "").rstrip("/"),
        alert_with_text=_switch(environment, "REPRETRAIN_ALERT_WITH_TEXT"),
        overdue_hours=_number(environment, "REPRETRAIN_OVERDUE_HOURS", 30.0),
        quiet_days=_number(environment, "REPRETRAIN_QUIET_DAYS", 3.0),
        stalled_minutes=_number(environment, "REPRETRAIN_STALLED_MINUTES", 30.0),
        idle_tpu_minutes=_number(environment, "REPRETRAIN_IDLE_TPU_MINUTES", 20.0),
    )

    if problems := list(_unhidden(settings.hidden_paths)):
        raise ConfigError(problems)
    return settings


@dataclass(frozen=True)
class TpuService:
    """How a command without Airflow reaches the TPU service that Airflow's tasks use.

    :param project_id: None: the environment names none.
    :param endpoint: None: Google's own.
    :param insecure: without TLS, for an emulator.
    """

    project_id: str | None = None
    endpoint: str | None = None
    insecure: bool = False


def tpu_service(environment: Mapping[str, str] = os.environ) -> TpuService:
    """Return the service by ``GOOGLE_CLOUD_PROJECT`` and the connection's environment variable.

    A connection that is stored in Airflow's database or a secrets backend is not read.
    """
    conn_id = load_settings(environment).gcp_conn_id
    try:
        connection = json.loads(environment.get(f"AIRFLOW_CONN_{conn_id.upper()}", "{}"))
        extra: dict[str, Any] = connection.get("extra") or {}
        extra = json.loads(extra) if isinstance(extra, str) else extra
    except (ValueError, AttributeError):  # A URI, say.
        extra = {}
    return TpuService(
        project_id=environment.get("GOOGLE_CLOUD_PROJECT") or extra.get("project"),
        endpoint=extra.get("tpu_api_endpoint"),
        insecure=bool(extra.get("tpu_insecure")),
    )


def mlflow_tracking_uri(environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of the MLflow server from the variable that MLflow itself reads.

    :raises ConfigError: it is not set to an HTTP address, so that MLflow would write into the
        working directory; or it contains a login, which MLflow's errors quote.
    """
    uri = environment.get("MLFLOW_TRACKING_URI", "")
    if _LOGIN.match(uri):
        problem = (
            "MLFLOW_TRACKING_URI has a login before its host, which would reach logs. Put it into "
            "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD."
        )
        raise ConfigError([problem])
    if not uri.startswith(("http://", "https://")):
        problem = (
            f"MLFLOW_TRACKING_URI is {uri!r}, and the mirror needs the address of a server, such "
            "as https://mlflow.example.com."
        )
        raise ConfigError([problem])
    return uri


def hub_repository(lineage_id: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the name of a lineage's repository on the Hugging Face Hub.

    :raises ConfigError: none is configured, or two lineages could have the same one.
    """
    pattern = load_settings(environment).hub_repository
    if not _REPOSITORY.fullmatch(pattern):
        problem = (
            f"REPRETRAIN_HUB_REPOSITORY is {pattern!r}, and the mirror needs an organization or a "
            "user, / and a name with {lineage} in it, such as acme/bert-{lineage}."
        )
        raise ConfigError([problem])
    return pattern.replace("{lineage}", lineage_id)


def hub_token(environment: Mapping[str, str] = os.environ) -> str:
    """Return the Hub token for a command, from the Hub's own variable; empty: none."""
    return environment.get("HF_TOKEN", "")


def add_store_argument(parser: argparse.ArgumentParser) -> None:
    """Add ``--store`` to a command that reads a store or removes something from it.

    A local folder must exist: an answer about the wrong, empty store, such as "no alert", would be
    believed.
    """
    try:
        default = load_settings().store_uri
    except ConfigError as error:
        parser.error(str(error))
    is_set = bool(os.environ.get("REPRETRAIN_STORE_URI"))

    def existing(uri: str) -> str:
        if "://" in uri or (os.path.isabs(uri) and os.path.isdir(uri)):
            return uri
        if uri != default or is_set:
            problem = "there is no such folder" if os.path.isabs(uri) else "it is relative"
            raise argparse.ArgumentTypeError(
                f"{uri}: {problem}; give the absolute path of a store's folder, or "
                "gs://BUCKET/PREFIX."
            )
        raise argparse.ArgumentTypeError(
            f"which store? REPRETRAIN_STORE_URI is not set, and there is no folder {uri}. Give "
            "--store URI, or run this where Airflow's settings are: on the team server with "
            "`docker compose exec scheduler` before it, on the local stack after "
            '`eval "$(.venv/bin/python -m local.stack env)"`.'
        )

    parser.add_argument(
        "--store",
        metavar="URI",
        type=existing,
        default=default,
        help="root of the store: an absolute folder or gs://BUCKET/PREFIX (default: %(default)s)",
    )


def is_private(name: str) -> bool:
    """Return whether an environment variable is Airflow's own or has the name of a secret.

    Jobs do not get those. The cloud credentials, which jobs need, have other names.
    """
    return name.startswith(("AIRFLOW", "_AIRFLOW")) or _SECRET_NAME.search(name) is not None


def _unhidden(paths: tuple[str, ...]) -> Iterator[str]:
    """Yield a line for each path that would hide nothing."""
    for path in paths:
        if not path.startswith("/"):
            problem = "is no absolute path, as which alone it names the same file for every process"
        elif set("*?[") & set(path):
            problem = "has *, ? or [, but is no pattern"
        else:
            continue
        yield (
            f"REPRETRAIN_HIDDEN_PATHS: {path!r} {problem}: nothing would be hidden. Give absolute "
            "paths with commas, such as /run/secrets,/home/airflow/airflow."
        )


def _number(environment: Mapping[str, str], name: str, default: float) -> float:
    text = environment.get(name, "").strip()
    try:
        value = float(text) if text else default
    except ValueError:
        value = math.nan
    # nan is not at least 0 either.
    if not 0 <= value < math.inf:
        raise ConfigError([f"{name} is {text!r}, and has to be a number from 0 on."])
    return value


def _switch(environment: Mapping[str, str], name: str) -> bool:
    text = environment.get(name, "").strip().lower()
    if text not in _OFF | _ON:
        # Not an error, which would stop DAGs that monitor TPUs.
        log.warning("%s is %r, and counts as off: set 1 for on, 0 or nothing for off.", name, text)
    return text in _ON


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())
