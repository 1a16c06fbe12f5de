"""Copies of the store in tools of others, as tasks."""

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
    """Adds to MLflow what it does not have of runs, versions and the one in use.

    Fails when MLflow cannot be asked, or when something could not be mirrored, after all the rest
    was; another try, and each later pass, does what is missing then.

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
    """Pushes to the Hugging Face Hub what it does not have of versions and the one in use.

    Fails as :class:`MlflowMirrorOperator` does. The token is read here, from Airflow, and handed to
    the Hub's library alone.

    Returns ``versions``, ids of what was pushed, ``in_use``, repositories whose ``main`` has
    changed, and ``dry_run``, what a pass without a token would push.

    :param store_uri: root of the store.
    :param hub_conn_id: connection whose password is the token, and whose host, if it has one, the
        Hub's address; empty: the pass only looks.
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
    """Make a pass and return its report, or fail as a task does."""
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
