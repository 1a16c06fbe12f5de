"""Failures of tasks that hold no TPU: a message of the pipeline's own, and a remedy.

Other exceptions of a task may quote corpus text, so no alert repeats their message.
"""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from model_registry.errors import ProductionMovedError, RegistryError, StalePlanError
from pipeline_alerts.causes import Remedy
from pipeline_store.formats import FormatError
from trained_models.errors import BadDataError, UserError


class PipelineFailure(AirflowFailException):
    """A failure that another try cannot fix; its message is the pipeline's own and has no text.

    :param remedy: what helps instead.
    """

    def __init__(self, remedy: Remedy, text: str) -> None:
        super().__init__(text)
        self.remedy = remedy


class PipelineRetry(AirflowException):
    """Like :class:`PipelineFailure`, but another try may help."""

    def __init__(self, remedy: Remedy, text: str) -> None:
        super().__init__(text)
        self.remedy = remedy


class RequestRefused(PipelineFailure):
    """A refusal of a run before anything is spent.

    :param problems: one line for each reason.
    :cvar summary: summary of the alert, instead of "task … failed".
    """

    summary = "refused before anything was spent"

    def __init__(self, problems: list[str]) -> None:
        head = f"Refused before anything was spent, {len(problems)} violation(s):"
        super().__init__(Remedy.CHANGE_REQUEST, "\n".join([head, *problems]))
        self.problems = problems


class RunHasFailed(AirflowFailException):
    """The failure of a failed run's last task, which raises no alert of its own."""

    is_told = True


def refused_by(
    error: RegistryError | UserError | BadDataError | FormatError,
) -> PipelineFailure:
    """Return the failure of a task that the registry, data or the run's own settings stop."""
    if isinstance(error, StalePlanError | ProductionMovedError):
        remedy = Remedy.NEW_RUN
    elif isinstance(error, UserError):
        remedy = Remedy.CHANGE_REQUEST
    elif isinstance(error, BadDataError):
        remedy = Remedy.MEND_INPUT
    else:
        remedy = Remedy.MEND_AND_CLEAR
    return PipelineFailure(remedy, str(error))
