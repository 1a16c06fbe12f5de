"""The names that Airflow keeps in its database: DAGs, tasks, XComs, triggers, what they resume."""

from __future__ import annotations

import ast
import inspect
import json
import os
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

from airflow.dag_processing.dagbag import DagBag
from airflow.sdk import BaseOperatorLink
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.base import BaseTrigger

import run_notes
from hooks import notes
from model_pages import VIEWS
from operators.pipeline_assets import PROMOTED_MODEL, announce_model
from pipeline_store.formats import ModelVersion
from tests.golden.discovery import (
    REPOSITORY,
    class_tree,
    literal_keys,
    own_bases,
    subclasses,
)
from tests.golden.more_files import full
from tpu_lifecycle.control.verdict import Outcome, Verdict

ARGUMENTS: dict[str, Any] = {
    "attempt": 2,
    "deadline": 1769860800.25,
    "gcp_conn_id": "google_cloud_default",
    "generation": 1,
    "holder_sequence": 3,
    "impersonation_chain": ["first@project.iam.gserviceaccount.com"],
    "job_id": "010-train",
    "poll_interval": 10.0,
    "run_uri": "gs://bucket/store/runs/0a1b2c3d4e5f",
    "store_uri": "gs://bucket/store",
    "viewer": "try1",
}
"""For arguments of triggers a value as it can be, for :func:`triggers`."""


@cache
def dags() -> dict[str, Any]:
    """Return the project's DAGs."""
    assert not [name for name in os.environ if name.startswith("REPRETRAIN_")]
    bag = DagBag(str(REPOSITORY / "dags"))
    assert not bag.import_errors, bag.import_errors
    return dict(sorted(bag.dags.items()))


def tasks() -> Iterator[tuple[str, Any]]:
    """Yield every task by its name with the DAG's."""
    for dag_id, dag in dags().items():
        for task in dag.tasks:
            yield f"{dag_id}.{task.task_id}", task


def _class(task: Any) -> type:
    """Return the class of a task, also of a mapped one."""
    return getattr(task, "operator_class", type(task))


def _field(task: Any, name: str) -> Any:
    """Return what a task was given, also a mapped one."""
    return getattr(task, name, getattr(task, "partial_kwargs", {}).get(name))


def task_names() -> dict[str, list[str]]:
    """Return of every task the job that it gives a TPU, its buttons, and what a person answers."""
    found = {}
    for name, task in tasks():
        lines = [f"job: {job}" for job in [_field(task, "job_id")] if job]
        links = _field(task, "operator_extra_links") or _class(task).operator_extra_links
        # Airflow finds a button's address by the name of its class.
        lines += [f"button: {link.name} ({link.xcom_key})" for link in _own(links)]
        lines += [f"answer: {option}" for option in _field(task, "options") or ()]
        lines += [f"event: {asset.name}" for asset in task.outlets]
        found[name] = lines
    return found


def _own(links: Any) -> list[BaseOperatorLink]:
    return [link for link in links if own_bases(type(link))]


def entry_points() -> set[str]:
    """Return the modules that tasks run on a TPU or in a process of their own."""
    # What an operator sets itself is known only to an operator that was made.
    found = {_field(task, name) for _, task in tasks() for name in ("entry_point", "module")}
    words = r"(?:entry_point|module)=\"([a-z_.]+)\""
    for base in {base for _, task in tasks() for base in own_bases(_class(task))}:
        found |= set(re.findall(words, inspect.getsource(base)))
    return {module for module in found if module}


def params() -> dict[str, list[str]]:
    """Return the fields of each DAG's form, which are the keys of a run's conf."""
    return {dag_id: sorted(dag.params) for dag_id, dag in dags().items()}


def xcoms() -> dict[str, list[str]]:
    """Return the keys that each task leaves for others, and those that others take from it."""
    found: dict[str, set[str]] = {name: set(_returned(_class(task))) for name, task in tasks()}
    for dag_id, dag in dags().items():
        text = json.dumps(DagSerialization.to_dict(dag))
        pulls = re.findall(r"xcom_pull\(task_ids='([\w.]+)'[^}]*?key='(\w+)'", text)
        pulls += re.findall(r'"task_id": "([\w.]+)", "key": "(\w+)"', text)
        for task_id, key in pulls:
            found[f"{dag_id}.{task_id}"].add(key)
    for task_id in (notes.FIRST_TASK, notes.LAST_TASK):
        found[f"{run_notes.DAG_IDS[0]}.{task_id}"] |= {notes.NOTE, notes.ENDED_BY, notes.BACKFILL}
    return {name: sorted(keys) for name, keys in found.items() if keys}


def _returned(operator: type) -> Iterator[str]:
    """Yield the keys of what an operator's ``execute`` and its further methods return or push."""
    methods: dict[str, list[ast.FunctionDef]] = {}
    for base in own_bases(operator):
        yield from re.findall(r"xcom_push\(\s*key=\"(\w+)\"", inspect.getsource(base))
        for node in ast.walk(class_tree(base)):
            if isinstance(node, ast.FunctionDef):
                methods.setdefault(node.name, []).append(node)
    wanted = ["execute", *_resumed_by(operator)]
    for name in wanted:
        for method in methods.get(name, ()):
            given = {
                target.id: node.value
                for node in ast.walk(method)
                if isinstance(node, ast.Assign)
                for target in node.targets
                if isinstance(target, ast.Name) and isinstance(node.value, ast.Dict | ast.Call)
            }
            for node in ast.walk(method):
                if isinstance(node, ast.Return) and node.value:
                    yield from literal_keys(node.value)
                    words = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
                    for value in (given[word] for word in sorted(words & set(given))):
                        if isinstance(value, ast.Dict):
                            yield from literal_keys(value)
                    # Of what is returned by its name, what was called for it.
                    returned = node.value.id if isinstance(node.value, ast.Name) else ""
                    said = ast.unparse(given.get(returned, node.value))
                    calls = re.findall(r"(?:self|super\(\))\.(\w+)\(", said)
                    wanted += [call for call in calls if call not in wanted]


def _resumed_by(operator: type) -> list[str]:
    """Return the methods by which a deferred task goes on; the names are kept meanwhile."""
    text = "\n".join(inspect.getsource(base) for base in operator.__mro__[:-1])
    names = set(re.findall(r"method_name=\"(\w+)\"", text))
    assert all(callable(getattr(operator, name)) for name in names)
    # Those of operators that are not ours are for their authors to keep.
    return sorted(name for name in names if any(name in vars(c) for c in own_bases(operator)))


def resumes() -> dict[str, list[str]]:
    """Return the methods by which each task that can wait goes on."""
    found = {
        name: [
            f"{method}({', '.join(inspect.signature(getattr(_class(task), method)).parameters)})"
            for method in _resumed_by(_class(task))
        ]
        for name, task in tasks()
    }
    return {name: methods for name, methods in found.items() if methods}


def triggers() -> dict[str, dict[str, Any]]:
    """Return every trigger of the project as Airflow stores it: arguments by class path."""
    made = (kind(**_arguments(kind)) for kind in subclasses(BaseTrigger) if _is_whole(kind))
    return dict(sorted(trigger.serialize() for trigger in made))


def _is_whole(kind: type) -> bool:
    return not inspect.isabstract(kind)


def _arguments(kind: type) -> dict[str, Any]:
    # A class that hands arguments on as **kwargs has those of its base, too.
    named = [
        name
        for base in own_bases(kind)
        for name, found in inspect.signature(base.__init__).parameters.items()
        if found.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    return {name: ARGUMENTS.get(name, f"a {name}") for name in named}


def trigger_events() -> dict[str, list[str]]:
    """Return the keys of the events that triggers fire, which wait in Airflow's database."""
    found = {}
    for kind in subclasses(BaseTrigger):
        if not _is_whole(kind):
            continue
        keys: set[str] = set()
        for base in own_bases(kind):
            text = textwrap.dedent(inspect.getsource(base))
            for node in ast.walk(class_tree(base)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "TriggerEvent":
                    keys.update(literal_keys(node))
            if "to_event()" in text:
                keys.update(Verdict(Outcome.READY).to_event())
        found[kind(**_arguments(kind)).serialize()[0]] = sorted(keys)
    return found


def asset_events() -> dict[str, list[str]]:
    """Return what an event of a model that came into use says."""
    event = SimpleNamespace(extra={}, add_partitions=lambda key: None)
    context: Any = {"outlet_events": {PROMOTED_MODEL: event}}
    announce_model(context, full(ModelVersion), partition="p", reason="r")
    return {PROMOTED_MODEL.name: sorted(event.extra)}


def pages() -> list[str]:
    """Return the addresses of the pages, which alerts and people link to."""
    return [f"{view['url_route']}: {view['href']}" for view in VIEWS]
