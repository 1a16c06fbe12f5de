"""The auth manager of a team server: Flask AppBuilder's, with a limit on wrong passwords.

Set ``AIRFLOW__CORE__AUTH_MANAGER=team_login.auth_manager.ThrottledFabAuthManager``. It needs
``requirements-team.txt``. Airflow looks for ``FabAuthManager`` in the class name.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, NoReturn

from airflow.providers.fab.auth_manager.fab_auth_manager import FabAuthManager
from airflow.providers.fab.auth_manager.security_manager.override import (
    FabAirflowSecurityManagerOverride,
)
from fastapi import HTTPException
from flask import abort, has_request_context

from team_login import throttle


class ThrottledSecurityManager(FabAirflowSecurityManagerOverride):
    """A password checker with a limit, for the login form and for ``/auth/token``: both count."""

    def auth_user_db(self, username: Any, password: Any, rotate_session_id: bool = True) -> Any:
        """Return the user if the password is right; see the base class."""
        name = str(username or "")
        # An account may be named by user name or mail address; both share a limit.
        account = self.find_user(username=name) or self.find_user(email=name)
        try:
            number = throttle.begin(
                name if account is None else account.username, is_known=account is not None
            )
        except throttle.TooManyFailuresError as error:
            _refuse(error)
        user = super().auth_user_db(username, password, rotate_session_id)
        if user is not None:
            throttle.succeeded(number)
        return user


class ThrottledFabAuthManager(FabAuthManager):
    """An auth manager with users and roles in Airflow's database, and a limit on wrong passwords.

    ``promotion.approvers`` are login names: the ids of Flask AppBuilder's users are numbers.
    """

    @cached_property
    def security_manager(self) -> Any:
        """Return the security manager, which checks passwords and stores users and roles."""
        return ThrottledSecurityManager(self.appbuilder)

    def is_authorized_hitl_task(self, *, assigned_users: set[str], user: Any) -> bool:
        """Return whether a user, by login name or numeric id, is assigned to a question."""
        return not assigned_users.isdisjoint({user.get_id(), user.username})


def _refuse(error: throttle.TooManyFailuresError) -> NoReturn:
    if has_request_context():
        # The form is served by Flask, everything else by FastAPI.
        abort(429, str(error))
    raise HTTPException(429, str(error), {"Retry-After": str(error.seconds)}) from error
