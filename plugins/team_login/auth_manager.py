"""The auth manager of a team server: Flask AppBuilder's, with a limit to wrong passwords.

``AIRFLOW__CORE__AUTH_MANAGER=team_login.auth_manager.ThrottledFabAuthManager``. It needs
``requirements-team.txt``. Airflow looks for ``FabAuthManager`` in the name.
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
    """Looks at passwords for the form and for ``/auth/token``: both count."""

    def auth_user_db(self, username: Any, password: Any, rotate_session_id: bool = True) -> Any:
        """Return the user if the password is right; see the base class."""
        name = str(username or "")
        # Either name of an account is taken; they share a limit.
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
    """Users and roles in Airflow's database, and no more tries at a password than are allowed.

    ``promotion.approvers`` are login names: the ids of Flask AppBuilder's users are numbers.
    """

    @cached_property
    def security_manager(self) -> Any:
        """Return what looks at passwords and keeps users and roles."""
        return ThrottledSecurityManager(self.appbuilder)

    def is_authorized_hitl_task(self, *, assigned_users: set[str], user: Any) -> bool:
        """Tell whether a question is for somebody, who is named by login name or number."""
        return not assigned_users.isdisjoint({user.get_id(), user.username})


def _refuse(error: throttle.TooManyFailuresError) -> NoReturn:
    if has_request_context():
        # The form is a page of Flask, all else of FastAPI.
        abort(429, str(error))
    raise HTTPException(429, str(error), {"Retry-After": str(error.seconds)}) from error
