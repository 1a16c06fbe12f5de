"""Copies of the store in tools of others, as tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from pipeline_config import ConfigError
from pipeline_store.layout import StoreLayout

if TYPE_CHECKING:
    from airflow.sdk import Context


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
        from pipeline_mirror.errors import ServerAwayError

        try:
            report = mirroring.mirror_configured(StoreLayout(self.store_uri))
        except (ConfigError, ImportError) as error:
            raise AirflowFailException(str(error)) from error
        except ServerAwayError as error:
            raise AirflowException(str(error)) from error
        self.log.info("%s", report)
        for problem in report.problems:
            self.log.error("%s", problem)
        if report.problems:
            raise AirflowException(
                f"{len(report.problems)} problem(s), the first: {report.problems[0]}"
            )
        return {"runs": report.runs, "versions": report.versions}
