"""The environment variables of the parts: all settings that configure Airflow as this stack.

Airflow reads ``AIRFLOW__SECTION__OPTION``; the options are described in
https://airflow.apache.org/docs/apache-airflow/stable/configurations-ref.html
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

from local.stack import credentials
from local.stack.paths import REPOSITORY, RuntimePaths, StackError, StatePaths
from local.stack.ports import HOST

# Every process of a stack has the state folder in this variable, by which `down` proves that none
# is left. It is never part of the environment for a user's own shell.
MARKER = "REPRETRAIN_STACK"
# The part that started a process, directly or not; not set on TPU VMs, which must outlive the
# emulator. Before a part starts again, leftover processes with its name here are ended.
PART = "REPRETRAIN_PART"
# The name that PostgreSQL shows for a session: the part, as above.
SESSION_NAME = "PGAPPNAME"
# Turns off what keeps a killed scheduler from freezing runs, for the check that shows its effect.
UNMENDED = "REPRETRAIN_STACK_UNMENDED"
_DATABASE_ADDRESS = "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"
# Seconds for which a scheduler may give no heartbeat before it is killed; for tests of that.
SILENT_SECONDS = "REPRETRAIN_STACK_SILENT_SECONDS"
API_SERVER, TASK_LOGS, TENSORBOARD = "api-server", "task-logs", "tensorboard"
# The scheduler's health server.
SCHEDULER_HEALTH = "scheduler-health"
PORT_NAMES = (API_SERVER, TASK_LOGS, TENSORBOARD, SCHEDULER_HEALTH)
# Only in an observed stack: then each has a port.
METRICS, PROMETHEUS, ALERTMANAGER = "metrics", "prometheus", "alertmanager"
DATABASE_USER = "airflow"
# A session that holds locks and is idle for this long belongs to a process that is halted, or to a
# dead one whose children hold its connection.
IDLE_TRANSACTION_SECONDS = 60
# Presets of the trigger forms: models that a CPU trains in minutes.
PRESET, FINETUNING_PRESET = "smoke", "finetuning_smoke"
# Inherited from the caller. Nothing else is: a proxy, a cloud login or an Airflow setting of the
# caller's shell would make the same stack behave differently on another day.
INHERITED = ("HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TERM", "TMPDIR")


def url(port: int) -> str:
    """Return the base URL of a part that serves HTTP."""
    return f"http://{HOST}:{port}"


def database_url(driver: str, runtime: RuntimePaths) -> str:
    """Return the SQLAlchemy URL of the metadata database.

    It contains no password: PostgreSQL asks the kernel which user is at the other end of the
    socket.
    """
    folder = quote(str(runtime.database), safe="/")
    return f"postgresql{driver}://{DATABASE_USER}@/postgres?host={folder}"


def require_changeable(extra: Mapping[str, str]) -> None:
    """Require that a caller may add or replace these settings.

    :raises StackError: a setting names another database. The stack has its own, and scheduler and
        triggerer have their own URL for it, which the setting would not change.
    """
    wrong = sorted(name for name in extra if name.startswith(_DATABASE_ADDRESS))
    if wrong:
        raise StackError(
            f"{', '.join(wrong)}: the local stack runs a PostgreSQL of its own and can use no "
            "other. Leave it out; a team server has another (docs/guides/deployment.md)."
        )


def impatient_database(runtime: RuntimePaths) -> dict[str, str]:
    """Return the settings of a part whose idle transactions PostgreSQL terminates.

    Only for parts whose transactions are never idle on purpose. It must not be a setting of the
    server: ``airflow db migrate`` holds its lock in a transaction that is idle for the whole
    migration.
    """
    limit = quote(f"-c idle_in_transaction_session_timeout={IDLE_TRANSACTION_SECONDS * 1000}")
    url = f"{database_url('+psycopg2', runtime)}&options={limit}"
    return {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url}


def environment(
    paths: StatePaths,
    runtime: RuntimePaths,
    ports: Mapping[str, int],
    extra: Mapping[str, str],
) -> dict[str, str]:
    """Return the environment for Airflow commands against this stack, without secrets.

    :param paths: the state folder.
    :param runtime: the folder of the sockets.
    :param ports: port by part, see :data:`PORT_NAMES`.
    :param extra: settings that the caller adds or replaces.
    """
    result = {name: os.environ[name] for name in INHERITED if name in os.environ}
    result["PATH"] = search_path()
    result["PYTHONPATH"] = str(REPOSITORY)
    result |= _airflow(paths, runtime, ports)
    result |= _project(paths, runtime)
    result["REPRETRAIN_TENSORBOARD_URL"] = url(ports[TENSORBOARD])
    if PROMETHEUS in ports:
        result["REPRETRAIN_METRICS_URL"] = url(ports[PROMETHEUS])
    result |= _quiet(paths)
    return result | dict(extra)


def process_environment(base: Mapping[str, str], paths: StatePaths) -> dict[str, str]:
    """Return the environment of the stack's own processes: ``base`` plus the ownership marker."""
    # Airflow renames its processes; by default that overwrites the memory from which the kernel
    # shows the environment, including the marker.
    return {**base, MARKER: str(paths.root), "SPT_NOENV": "1"}


def search_path() -> str:
    """Return PATH with this Python environment's programs first."""
    own = str(Path(sys.executable).parent)
    return os.pathsep.join([own, os.environ.get("PATH", os.defpath)])


def _airflow(paths: StatePaths, runtime: RuntimePaths, ports: Mapping[str, int]) -> dict[str, str]:
    base_url = url(ports[API_SERVER])
    sections: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": REPOSITORY / "dags",
            "plugins_folder": REPOSITORY / "plugins",
            "load_examples": False,
            "executor": "LocalExecutor",
            "parallelism": 4,
            "auth_manager": "airflow.api_fastapi.auth.managers.simple.simple_auth_manager"
            ".SimpleAuthManager",
            "simple_auth_manager_users": f"{credentials.USER}:admin",
            "simple_auth_manager_all_admins": False,
            "simple_auth_manager_passwords_file": paths.passwords,
            "execution_api_server_url": f"{base_url}/execution/",
            "hostname_callable": "local.stack.hostname.loopback",
        },
        "database": {
            "sql_alchemy_conn": database_url("+psycopg2", runtime),
            "sql_alchemy_conn_async": database_url("+asyncpg", runtime),
        },
        "api": {"host": HOST, "port": ports[API_SERVER], "base_url": base_url, "workers": 1},
        "logging": {
            # One server for both, see parts.py; Airflow's own servers listen on every interface.
            "worker_log_server_port": ports[TASK_LOGS],
            "trigger_log_server_port": ports[TASK_LOGS],
            "colored_console_log": False,
        },
        "dag_processor": {
            # Changed files are parsed after the refresh; unchanged ones need not be parsed often.
            "refresh_interval": 10,
            "min_file_process_interval": 60,
            "parsing_processes": 1,
        },
        # By default, a task on a busy machine fails before it begins if the API server does not
        # answer within five seconds.
        "workers": {"execution_api_timeout": 30},
        "scheduler": {
            # A small server in a process of its own, which liveness.py polls.
            "enable_health_check": True,
            "scheduler_health_check_server_host": HOST,
            "scheduler_health_check_server_port": ports[SCHEDULER_HEALTH],
            # A short sleep lets a task start right after the one before it.
            "scheduler_idle_sleep_time": 0.3,
            # Tasks that died with a scheduler are restarted once it has given no heartbeat for 30 s
            # and the next check runs: by default every 5 minutes, so this makes it within 45 s.
            "orphaned_tasks_check_interval": 15,
        },
    }
    result = {"AIRFLOW_HOME": str(paths.airflow_home)}
    for section, options in sections.items():
        for option, value in options.items():
            result[f"AIRFLOW__{section.upper()}__{option.upper()}"] = str(value)
    return result


def _project(paths: StatePaths, runtime: RuntimePaths) -> dict[str, str]:
    connection = {
        "conn_type": "google_cloud_platform",
        "extra": {
            "is_anonymous": True,
            "project": "local-project",
            "tpu_api_endpoint": f"unix:{runtime.emulator_socket}",
            "tpu_insecure": True,
        },
    }
    return {
        "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": json.dumps(connection),
        "REPRETRAIN_STORE_URI": str(paths.store),
        "REPRETRAIN_PRESET": PRESET,
        # The demo has a separate folder of text per lineage.
        "REPRETRAIN_INPUT_ROOTS": "corpus,corpora,tasks,imports",
        # Of the stack's files, data jobs need only the store, which stays readable to them.
        "REPRETRAIN_HIDDEN_PATHS": str(paths.root),
        "REPRETRAIN_FINETUNING_PRESET": FINETUNING_PRESET,
    }


def _quiet(paths: StatePaths) -> dict[str, str]:
    """Return settings that keep libraries from searching for a cloud environment."""
    return {
        "CLOUDSDK_CONFIG": str(paths.no_gcloud),
        "NO_GCE_CHECK": "true",
        "GCE_METADATA_TIMEOUT": "1",
        # gcsfs otherwise makes one gRPC call per bucket that ignores emulators and stalls a minute.
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
