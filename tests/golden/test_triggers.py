"""Triggers that wait in Airflow's database can be run after an upgrade."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pytest
from airflow._shared.module_loading import import_string
from airflow.models.trigger import Trigger
from airflow.sdk.serde import deserialize, serialize
from airflow.triggers.base import BaseTrigger

from tests.golden.discovery import subclasses
from tests.golden.write import TRIGGERS

KEPT: dict[str, dict[str, Any]] = json.loads(TRIGGERS.read_text())


@pytest.mark.parametrize("classpath", KEPT)
def test_a_kept_trigger_is_made_as_the_triggerer_makes_it(classpath: str) -> None:
    arguments = KEPT[classpath]
    kind = import_string(classpath)
    assert issubclass(kind, BaseTrigger)
    trigger = kind(**deserialize(arguments))
    path, again = trigger.serialize()
    assert path == classpath
    # A further argument with a default does not disturb it.
    assert {name: serialize(again[name]) for name in arguments} == arguments


@pytest.mark.parametrize("classpath", KEPT)
def test_airflow_stores_it_and_gives_it_back(classpath: str) -> None:
    row = Trigger.from_object(import_string(classpath)(**KEPT[classpath]))
    assert row.classpath == classpath
    assert {name: row.kwargs[name] for name in KEPT[classpath]} == KEPT[classpath]


def test_every_trigger_is_kept() -> None:
    ours = {kind.__name__ for kind in subclasses(BaseTrigger) if not inspect.isabstract(kind)}
    assert {path.rpartition(".")[2] for path in KEPT} >= ours
