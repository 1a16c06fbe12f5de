"""The right to commit: checks that this attempt may make files of a run visible."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pipeline_store.formats import Holder
from trained_models.errors import LostHolderError

STANDALONE_TOKEN = "standalone"  # noqa: S105 - a name for "nobody else writes here"


@dataclass(frozen=True)
class CommitGuard:
    """The token of this process and the URI of the run's holder.

    A trainer on a TPU that was abandoned can run on for minutes. It may write bytes below its own
    token, but before each commit it checks whether it is still the holder.
    """

    token: str
    holder_uri: str | None

    @classmethod
    def from_environment(cls) -> CommitGuard:
        """Return the guard that the on-VM agent set up; outside of a pipeline, one that allows all.

        :raises LostHolderError: one of the two variables is set without the other.
        """
        holder_uri = os.environ.get("REPRETRAIN_HOLDER_URI")
        token = os.environ.get("REPRETRAIN_TOKEN")
        if (holder_uri is None) != (token is None):
            raise LostHolderError(
                "REPRETRAIN_HOLDER_URI and REPRETRAIN_TOKEN belong together, but only one is set; "
                "set both, or neither for a run outside the pipeline."
            )
        return cls(token or STANDALONE_TOKEN, holder_uri)

    def check(self) -> None:
        """Check that this process may commit.

        :raises LostHolderError: another attempt holds the run, or none does.
        """
        if self.holder_uri is None:
            return
        holder = Holder.load_or_none(self.holder_uri)
        if holder is None or holder.token != self.token:
            found = "nobody" if holder is None else f"attempt {holder.attempt}"
            raise LostHolderError(
                f"{self.holder_uri} names {found} as the holder of this run, not this process. It "
                "was replaced; nothing more is committed here, and there is nothing to do."
            )
