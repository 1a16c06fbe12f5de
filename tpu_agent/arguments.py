"""Types of command line arguments that the agent and the switch have in common."""

from __future__ import annotations

import argparse
from datetime import datetime


def moment(text: str) -> datetime:
    """Return a point in time that is the same one on every machine.

    :raises argparse.ArgumentTypeError: it has no time zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise argparse.ArgumentTypeError(f"{text!r} has no time zone; append +00:00 for UTC")
    return time
