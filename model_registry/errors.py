"""Errors of the registry."""

from __future__ import annotations


class RegistryError(RuntimeError):
    """The registry cannot fulfill a request; the message says why and what to do."""


class ProductionMovedError(RegistryError):
    """Another model was put into production since the candidate was compared."""


class LeaseLostError(RegistryError):
    """The run does not hold the lineage's lease, so it may neither train nor promote."""


class StalePlanError(RegistryError):
    """Another model was put into production since the run's plan was made."""


class UnconfirmedError(RegistryError):
    """A removal may be due to a wrong clock, or is unusually large; a person must confirm it."""


class DamagedVersionError(RegistryError):
    """Files of a version are missing or changed; ``problems`` has one line for each."""

    def __init__(self, folder: str, problems: list[str]) -> None:
        super().__init__(f"{folder} cannot be trusted: " + "; ".join(problems))
        self.problems = problems
