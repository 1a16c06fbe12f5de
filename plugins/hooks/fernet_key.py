"""Re-encrypts Airflow's secrets with the newest Fernet key.

Copy-paste, where Airflow's settings are and name both keys, as ``fernet_key = NEW,OLD``:
``python -P plugins/hooks/fernet_key.py``

``airflow rotate-fernet-key`` fails while any task is deferred, that is, for as long as a TPU
trains: it assumes that the arguments of every trigger are encrypted, but Airflow 3.3.2 stores those
of tasks as plain JSON.
"""

from __future__ import annotations

import sys

from airflow.cli.commands.rotate_fernet_key_command import rotate_items_in_batches
from airflow.models.connection import Connection
from airflow.models.connection_test import ConnectionTestRequest
from airflow.models.trigger import Trigger
from airflow.models.variable import Variable
from airflow.utils.session import create_session
from cryptography.fernet import InvalidToken

_PLAIN = "{"
"""First character of trigger arguments that are not encrypted."""


def main() -> int:
    """Re-encrypt everything and return 0; return 1 and change nothing if a key is missing."""
    encrypted = {
        Connection: Connection.is_encrypted | Connection.is_extra_encrypted,
        Variable: Variable.is_encrypted,
        Trigger: ~Trigger.encrypted_kwargs.startswith(_PLAIN),
        ConnectionTestRequest: ConnectionTestRequest.is_encrypted
        | ConnectionTestRequest.is_extra_encrypted,
    }
    try:
        with create_session() as session:
            for kind, condition in encrypted.items():
                rotate_items_in_batches(session, kind, filter_condition=condition)
    except InvalidToken:
        print(
            "Something in Airflow's database is encrypted with a key that fernet_key does not "
            "name, so all was left as it was. Put that key behind the others, with a comma, and "
            "repeat.",
            file=sys.stderr,
        )
        return 1
    print("All that is encrypted is encrypted with the newest key; the older ones can go.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
