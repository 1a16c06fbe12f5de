"""Mirrors the store to MLflow and the Hugging Face Hub, as tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseHook, BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from pipeline_config import ConfigError
from pipeline_store.layout import StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context

    from pipeline_mirror.passes import Report


R = TypeVar("R", bound="Report")


class MlflowMirrorOperator(BaseOperator):
    """Adds runs and versions that MLflow is missing, and updates which version is in use.

    Fails when MLflow cannot be reached, or when something could not be mirrored, after mirroring
    everything else; another try, and each later pass, adds what is still missing.

    Returns ``runs`` and ``versions``, the keys and ids of what was written.

    :param store_uri: root of the store.
    """

    def __init__(self, *, store_uri: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri

    def execute(self, context: Context) -> dict[str, Any]:
        """Make one pass."""
        from pipeline_mirror import mirroring

        store = StoreLayout(self.store_uri)
        report = _pass(self, lambda: mirroring.mirror_configured(store))
        return {"runs": report.runs, "versions": report.versions}


class HubMirrorOperator(BaseOperator):
    """Pushes versions that the Hugging Face Hub is missing, and updates which one is in use.

    Fails as :class:`MlflowMirrorOperator` does. The token is read here, from Airflow, and passed to
    the Hub's library only.

    Returns ``versions``, ids of the pushed versions, ``in_use``, repositories whose ``main`` has
    changed, and ``dry_run``, what a pass without a token would push.

    :param store_uri: root of the store.
    :param hub_conn_id: connection whose password is the token, and whose host, if set, is the Hub's
        address; empty: a dry run.
    """

    def __init__(self, *, store_uri: str, hub_conn_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.store_uri = store_uri
        self.hub_conn_id = hub_conn_id

    def execute(self, context: Context) -> dict[str, Any]:
        """Make one pass."""
        from pipeline_mirror import hub_mirroring

        token, endpoint = self._login()
        store = StoreLayout(self.store_uri)
        report = _pass(self, lambda: hub_mirroring.mirror_to_hub(store, token, endpoint))
        return {"versions": report.versions, "in_use": report.moved, "dry_run": report.tried}

    def _login(self) -> tuple[str, str | None]:
        if not self.hub_conn_id:
            return "", None
        # Airflow masks the password in logs from here on.
        connection = BaseHook.get_connection(self.hub_conn_id)
        if not connection.password:
            raise AirflowFailException(
                f"Connection {self.hub_conn_id!r} has no password, which is the Hub's token. Give "
                "it one, or leave REPRETRAIN_HUB_CONN_ID empty for a dry run."
            )
        host = connection.host
        if host and "://" not in host:
            host = f"https://{host}"
        return connection.password, host or None


def _pass(operator: BaseOperator, make: Callable[[], R]) -> R:
    """Make a pass and return its report, or raise Airflow's exception for a failed task.

    :raises AirflowFailException: the configuration or a library is wrong or missing.
    :raises AirflowException: the server cannot be reached, or something could not be mirrored.
    """
    from pipeline_mirror.errors import ServerAwayError

    try:
        report = make()
    except (ConfigError, ImportError) as error:
        raise AirflowFailException(str(error)) from error
    except ServerAwayError as error:
        raise AirflowException(str(error)) from error
    operator.log.info("%s", report)
    for problem in report.problems:
        operator.log.error("%s", problem)
    if report.problems:
        raise AirflowException(
            f"{len(report.problems)} problem(s), the first: {report.problems[0]}"
        )
    return report
