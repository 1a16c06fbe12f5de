"""Crashes and restarts the emulator by itself: it keeps the process id, but nothing in memory."""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import signal
import sys
import threading
import time
from typing import Any

from tpu_emulator.fault_commands import Command, checked_seconds

_log = logging.getLogger(__name__)
_AWAY = "TPU_EMULATOR_AWAY_SECONDS"
_REPLY_SECONDS = 0.2
_MAX_DESCRIPTORS = 65536


def commands() -> dict[str, Command]:
    """The commands by name."""
    return {"Restart": restart}


def restart(*, seconds: float) -> dict[str, Any]:
    """Plans the crash for a moment later, so that this call is still answered.

    Raises:
        ApiError: INVALID_ARGUMENT for a negative duration.
    """
    arguments = (checked_seconds(seconds),)
    timer = threading.Timer(_REPLY_SECONDS, _run_again, arguments)
    timer.daemon = True
    timer.start()
    return {}


def stay_away() -> None:
    """Waits as long as the restart asked for, before anything is served."""
    time.sleep(float(os.environ.pop(_AWAY, "0")))


def _run_again(away: float) -> None:
    _log.info("restarting, away for %s s", away)
    # Descriptors that stay open would keep clients waiting for answers that never come.
    highest, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for descriptor in range(3, min(highest, _MAX_DESCRIPTORS)):
        with contextlib.suppress(OSError):
            os.set_inheritable(descriptor, False)
    os.environ[_AWAY] = str(away)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - itself
