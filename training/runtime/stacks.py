"""Shows where every Python thread of this process is, when the agent asks by a signal.

The answer is written by the signal's handler itself, in C: it needs neither the GIL nor a thread
that gets to run, so a process answers also while it hangs in another library.

Source: https://docs.python.org/3/library/faulthandler.html#faulthandler.register
"""

from __future__ import annotations

import faulthandler
import os
import signal
from pathlib import Path
from typing import TextIO

STACKS_FOLDER = "REPRETRAIN_STACKS_FOLDER"
"""Variable of the environment that names the folder of the answers; without it none is given."""

# The handler writes to the descriptor for as long as the process lives.
_answers: list[TextIO] = []


def answer() -> None:
    """Answer from now on, into ``<pid>.txt``; that the file is there says that this one answers."""
    folder = os.environ.get(STACKS_FOLDER)
    if folder is None or _answers:
        return
    aside = Path(folder, f"{os.getpid()}.aside")
    file = aside.open("w")
    _answers.append(file)
    faulthandler.register(signal.SIGUSR1, file, all_threads=True)
    aside.rename(aside.with_suffix(".txt"))
