"""The roles of a team server as a table: which DAGs they are about, and how little they may."""

from __future__ import annotations

from pathlib import Path

import pytest

from team_login.roles import CREATE, DAGS, EDIT, READ, ROLES, ROLLBACK_DAG

ROOT = Path(__file__).parents[2]


def changed(role: str) -> set[str]:
    """Return what a role may make, change or remove."""
    return {what for action, what in ROLES[role] if action not in (READ, "menu_access")}


def test_every_dag_is_somebodys() -> None:
    assert sorted(DAGS) == sorted(path.stem for path in (ROOT / "dags").glob("*.py"))


def test_each_role_has_the_rights_of_the_one_before() -> None:
    assert ROLES["viewer"] < ROLES["operator"] < ROLES["approver"]


def test_no_role_is_for_all_dags() -> None:
    granted = {what for permissions in ROLES.values() for action, what in permissions}
    assert all((what == "DAGs") <= (action == "menu_access") for action, what in ROLES["approver"])
    forbidden = {"Connections", "Variables", "Configurations", "Pools", "Users", "Roles"}
    assert not granted & forbidden


@pytest.mark.parametrize("role", ROLES)
def test_nothing_is_deleted_and_no_result_changed(role: str) -> None:
    assert not {action for action, _ in ROLES[role]} - {READ, EDIT, CREATE, "menu_access"}
    assert "XComs" not in changed(role)


def test_what_operators_and_approvers_add() -> None:
    assert changed("viewer") == {"My Password", "My Profile"}
    assert changed("approver") - changed("operator") == {"HITL Detail", f"DAG:{ROLLBACK_DAG}"}
    assert not {"DAG:tpu_reaper", "DAG:pipeline_watch", "DAG:store_retention"} & changed("approver")
