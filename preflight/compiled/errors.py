"""Errors for which a check ends without figures."""

from __future__ import annotations

import json
from typing import Any


class CheckError(Exception):
    """The check cannot be done as asked; the message says what to change."""


class UncompilableStepError(CheckError):
    """The step cannot run on a TPU: it cannot be exported, or breaks a rule of the lint."""


class DoesNotFitError(CheckError):
    """The step needs more memory than a chip has."""

    def __init__(
        self,
        *,
        name: str,
        rows: int,
        largest_rows: int | None,
        replicas: int,
        compiled: dict[str, Any],
    ) -> None:
        self.name = name
        self.rows = rows
        self.largest_rows = largest_rows
        self.largest_global_batch_size = largest_rows and largest_rows * replicas
        self.available_gib = compiled["available_gib"]
        super().__init__(f"{name}: {rows} rows do not fit: {compiled['message']} {self._advice()}")

    def _advice(self) -> str:
        if self.largest_rows is None:
            return "No smaller batch was found to fit."
        return (
            f"The largest that does: {self.largest_rows} rows a replica, which is "
            f"global_batch_size={self.largest_global_batch_size} on the configured slice."
        )

    def json_line(self) -> str:
        """Return the refusal as one JSON object."""
        return json.dumps(
            {
                "name": self.name,
                "fits": False,
                "rows": self.rows,
                "largest_rows": self.largest_rows,
                "largest_global_batch_size": self.largest_global_batch_size,
                "hbm_available_gib": self.available_gib,
                "estimate": True,
            }
        )
