"""What is needed of a logger, so that Airflow's task logger serves as well as the standard one."""

from __future__ import annotations

from typing import Any, Protocol


class Log(Protocol):
    """Takes a message with ``%`` places and what belongs there."""

    def info(self, msg: Any, /, *args: Any) -> Any:
        """Tell what is done."""
        ...

    def warning(self, msg: Any, /, *args: Any) -> Any:
        """Tell what went otherwise than meant."""
        ...

    def error(self, msg: Any, /, *args: Any) -> Any:
        """Tell what a person has to look at."""
        ...
