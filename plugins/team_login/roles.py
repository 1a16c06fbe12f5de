"""Defines the roles of a team server, as permissions of Flask AppBuilder.

To change a part of a DAG, Airflow requires two permissions: the one for that kind of part, such as
``DAG Runs``, and the one to edit that DAG. So permissions that are granted here for all DAGs take
effect only for the DAGs that a role may edit. Explained in ``docs/guides/team-login.md``.

https://airflow.apache.org/docs/apache-airflow-providers-fab/stable/auth-manager/access-control.html
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

READ, EDIT, CREATE, MENU = "can_read", "can_edit", "can_create", "menu_access"

Permission = tuple[str, str]
"""An action, and the resource that it applies to."""

ROLLBACK_DAG = "model_rollback"
OPERATED_DAGS = (
    "bert_repretraining",
    "bert_finetuning",
    "corpus_arrivals",
    "corpus_watch",
    "promoted_models",
)
"""The DAGs that operators trigger, stop and pause."""
KEPT_DAGS = ("hub_mirror", "model_mirror", "pipeline_watch", "store_retention", "tpu_reaper")
"""The maintenance DAGs, which only administrators may operate."""
DAGS = (*OPERATED_DAGS, ROLLBACK_DAG, *KEPT_DAGS)

_PARTS = (
    "DAG Code",
    "DAG Dependencies",
    "DAG Runs",
    "DAG Versions",
    "DAG Warnings",
    "HITL Detail",
    "Task Instances",
    "Task Logs",
    "XComs",
)
_OTHERS = ("Asset Aliases", "Assets", "Backfills", "Cluster Activity", "ImportError", "Website")
# Airflow requires this before it lists the tabs and pages of plugins for the UI.
_PAGES = ("Plugins",)
_OWN = ("My Password", "My Profile")
_MENUS = ("Assets", "Browse", "DAG Runs", "DAGs", "Docs", "Documentation", "HITL Detail")


def _granted(action: str, resources: Iterable[str]) -> frozenset[Permission]:
    return frozenset((action, resource) for resource in resources)


def _dags(names: Iterable[str]) -> list[str]:
    return [f"DAG:{name}" for name in names]


_VIEWER = (
    _granted(READ, [*_dags(DAGS), *_PARTS, *_OTHERS, *_PAGES, *_OWN])
    | _granted(EDIT, _OWN)
    | _granted(MENU, _MENUS)
)
_OPERATOR = (
    _VIEWER
    | _granted(EDIT, [*_dags(OPERATED_DAGS), "DAG Runs", "Task Instances", "Backfills"])
    | _granted(CREATE, ["DAG Runs", "Backfills", "Assets"])
)
_APPROVER = _OPERATOR | _granted(EDIT, [*_dags([ROLLBACK_DAG]), "HITL Detail"])

ROLES: Mapping[str, frozenset[Permission]] = MappingProxyType(
    {"viewer": _VIEWER, "operator": _OPERATOR, "approver": _APPROVER}
)
