"""Reads what a job says that it does just now."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from pipeline_store.formats import JobPhase, PhaseName

_log = logging.getLogger(__name__)


class PhaseFile:
    """The file that one start of a job replaces whenever its phase changes or moves."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = b""
        self._phase = JobPhase(name=PhaseName.OTHER, entered=datetime.now(UTC))

    def read(self) -> JobPhase:
        """Return what the job said last; one that has said nothing yet is starting."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return self._phase
        if data != self._data:
            self._data = data
            try:
                self._phase = JobPhase.model_validate_json(data)
            except ValidationError as error:
                _log.warning("%s is not a JobPhase: %s", self._path, error)
        return self._phase
