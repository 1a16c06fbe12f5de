"""Sets up the roles and the administrator of a team server, at each start.

Copy-paste, where Airflow's settings are: ``python -P plugins/team_login/prepare.py LOGINS``. The
file is a JSON object with the password of ``admin``; other users are only in Airflow's database,
see ``docs/guides/team-login.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from airflow.providers.fab.auth_manager.cli_commands.utils import get_application_builder
from airflow.utils.providers_configuration_loader import providers_configuration_loaded

from team_login.roles import ROLES

ADMIN, ADMIN_ROLE = "admin", "Admin"


@providers_configuration_loaded
def main(argv: Sequence[str] | None = None) -> int:
    """Set roles and password; return 0, or 1 when the file has none."""
    parser = argparse.ArgumentParser(prog="prepare.py", description=__doc__)
    parser.add_argument("logins", type=Path, help="the JSON object")
    path = parser.parse_args(argv).logins
    password = json.loads(path.read_text()).get(ADMIN)
    if not isinstance(password, str) or not password:
        print(f"{path} has no password of {ADMIN!r}; make_secrets.py makes one.", file=sys.stderr)
        return 1
    with get_application_builder() as builder:
        builder.add_permissions(update_perms=True)
        builder.sm.sync_roles()
        _set_roles(builder.sm)
        _set_administrator(builder.sm, password)
    return 0


def _set_roles(manager: Any) -> None:
    """Give each role exactly the permissions in the table."""
    for name, granted in ROLES.items():
        permissions = [manager.create_permission(*pair) for pair in sorted(granted)]
        role = manager.find_role(name) or manager.add_role(name)
        role.permissions = permissions
    manager.session.commit()


def _set_administrator(manager: Any, password: str) -> None:
    user = manager.find_user(username=ADMIN)
    if user is None:
        role = manager.find_role(ADMIN_ROLE)
        manager.add_user(ADMIN, "Server", "Administrator", f"{ADMIN}@localhost", role, password)
    elif not manager.check_password(ADMIN, password):
        manager.reset_password(user.id, password)


if __name__ == "__main__":
    sys.exit(main())
