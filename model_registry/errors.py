"""What can be wrong with the registry."""

from __future__ import annotations


class RegistryError(RuntimeError):
    """The registry cannot do what was asked; the message says why and what to do."""


class ProductionMovedError(RegistryError):
    """Another model came into use since the candidate was compared."""


class LeaseLostError(RegistryError):
    """The run does not hold the lineage's lease, so it may neither train nor promote."""


class StalePlanError(RegistryError):
    """Another model came into use since the run's plan was made."""


class UnconfirmedError(RegistryError):
    """Something would go that a wrong clock, too, would make old; a person has to confirm it."""


class DamagedVersionError(RegistryError):
    """Files of a version are missing or changed; ``problems`` has one line for each."""

    def __init__(self, folder: str, problems: list[str]) -> None:
        super().__init__(f"{folder} cannot be trusted: " + "; ".join(problems))
        self.problems = problems
