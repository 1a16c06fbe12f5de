"""Gives a stack new secrets, its login and all keys, and loses nothing that is encrypted."""

from __future__ import annotations

import subprocess
import sys

from local.stack import credentials
from local.stack.paths import REPOSITORY, StackError
from local.stack.stack import Stack
from local.stack.status import StackStatus

# A program and no import: it needs Airflow, and this room does without.
_ENCRYPT_ANEW = REPOSITORY / "plugins" / "hooks" / "fernet_key.py"


def rotate(stack: Stack, start_seconds: float) -> StackStatus:
    """Stop a stack, replace its secrets, and start it with the settings of its last start.

    Stored connections and variables are encrypted: a key that merely vanished would leave some that
    cannot even be listed or deleted. So Airflow knows both keys until all is encrypted anew.

    :param start_seconds: how long the start may take.
    :returns: what runs then.
    :raises StackError: the stack was never started, did not start again, or not all was encrypted
        anew. Nothing is lost then: both keys are kept, and it can be repeated.
    """
    again = stack.as_last_started()
    again.down()
    credentials.renew(again.paths)
    status = again.up(start_seconds)
    done = subprocess.run(
        [sys.executable, "-P", str(_ENCRYPT_ANEW)],
        env=again.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StackError(
            f"{_ENCRYPT_ANEW} ended with exit code {done.returncode}, so the old Fernet key stays "
            f"in {again.paths.airflow_config}. Remove the cause and repeat:\n"
            f"{(done.stdout + done.stderr)[-2000:]}"
        )
    # Processes that run still know it; nothing is left that it decrypts.
    credentials.forget_old_fernet_keys(again.paths)
    return status
