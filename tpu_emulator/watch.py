"""Looks again and again for what armed faults wait for: a time, a file, the next event."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Any

from tpu_emulator.errors import ApiError
from tpu_emulator.faults import Faults

_log = logging.getLogger(__name__)
_POLL_SECONDS = 0.1


class Watch:
    """One thread that calls the handler of every armed fault that has one."""

    def __init__(
        self, faults: Faults, handlers: Mapping[str, Callable[[dict[str, Any]], None]]
    ) -> None:
        """Takes the handlers by kind of fault; they use up the fault when it strikes."""
        self._faults = faults
        self._handlers = handlers
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="watch", daemon=True)

    def start(self) -> None:
        """Starts looking."""
        self._thread.start()

    def stop(self) -> None:
        """Ends when the look under way is over."""
        self._stopped.set()
        self._thread.join()

    def _loop(self) -> None:
        while not self._stopped.wait(_POLL_SECONDS):
            for fault in self._faults.armed():
                if fault["kind"] in self._handlers:
                    self._look(fault)

    def _look(self, fault: dict[str, Any]) -> None:
        try:
            self._handlers[fault["kind"]](fault)
        except ApiError as error:
            _log.info("%s: %s", fault["kind"], error.message)
        except Exception:  # noqa: BLE001 - the other faults must go on
            _log.exception("%s failed, again soon", fault["kind"])
