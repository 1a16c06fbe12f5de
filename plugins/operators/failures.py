"""How tasks fail that hold no TPU: a message of the pipeline's own, and what helps.

What a task raises otherwise may quote corpus text, and no alert repeats it.
"""

from __future__ import annotations

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from model_registry.errors import ProductionMovedError, RegistryError, StalePlanError
from pipeline_alerts.causes import Remedy
from pipeline_store.formats import FormatError
from trained_models.errors import BadDataError, UserError


class PipelineFailure(AirflowFailException):
    """Another try of the task cannot help. Its message is the pipeline's own, and holds no text.

    :param remedy: what does help.
    """

    def __init__(self, remedy: Remedy, text: str) -> None:
        super().__init__(text)
        self.remedy = remedy


class PipelineRetry(AirflowException):
    """As :class:`PipelineFailure`, but another try may help."""

    def __init__(self, remedy: Remedy, text: str) -> None:
        super().__init__(text)
        self.remedy = remedy


class RequestRefused(PipelineFailure):
    """A run is refused before anything is spent.

    :param problems: one line for each reason.
    :cvar summary: of the alert, in place of that the task failed.
    """

    summary = "refused before anything was spent"

    def __init__(self, problems: list[str]) -> None:
        head = f"Refused before anything was spent, {len(problems)} violation(s):"
        super().__init__(Remedy.CHANGE_REQUEST, "\n".join([head, *problems]))
        self.problems = problems


class RunHasFailed(AirflowFailException):
    """The run has failed, and its last task fails with it; of that task nobody is told."""

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
