"""What Airflow's providers expect of operators, so that these could be one of them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator

import pytest
from airflow.sdk import DAG, BaseOperator
from airflow.serialization.serialized_objects import DagSerialization

from operators import tpu as operators
from operators.tpu_base import TpuOperator

OPERATORS = [
    value
    for value in vars(operators).values()
    if inspect.isclass(value)
    and issubclass(value, TpuOperator)
    and value.__module__ == "operators.tpu"
]


def own_classes(operator: type[TpuOperator]) -> Iterator[type]:
    return (each for each in operator.__mro__ if each not in BaseOperator.__mro__)


def documented(operator: type[TpuOperator]) -> dict[str, bool]:
    """Return the parameters that docstrings name, and whether they call them templated."""
    found = {}
    for each in own_classes(operator):
        for text in re.split(r"(?=:param )", inspect.getdoc(each) or "")[1:]:
            found[text.split()[1].rstrip(":")] = "(templated)" in text
    return found


def parameters(operator: type[TpuOperator]) -> set[str]:
    found = set()
    for each in own_classes(operator):
        if "__init__" in vars(each):
            kinds = inspect.signature(inspect.unwrap(each.__init__)).parameters  # type: ignore[misc]
            found |= {name for name, value in kinds.items() if value.kind is value.KEYWORD_ONLY}
    return found


def test_there_are_five() -> None:
    assert {each.__name__ for each in OPERATORS} == {
        "TpuReserveOperator",
        "TpuCreateOperator",
        "TpuRunOperator",
        "TpuDeleteOperator",
        "TpuReaperOperator",
    }


@pytest.mark.parametrize("operator", OPERATORS)
def test_every_parameter_is_documented_with_its_templating(operator: type[TpuOperator]) -> None:
    said = documented(operator)
    assert parameters(operator) == set(said)
    assert {name for name, templated in said.items() if templated} == set(operator.template_fields)


@pytest.mark.parametrize("operator", OPERATORS)
def test_the_connection_is_given_as_in_the_google_provider(operator: type[TpuOperator]) -> None:
    assert {"gcp_conn_id", "impersonation_chain"} <= set(operator.template_fields)
    signature = inspect.signature(inspect.unwrap(TpuOperator.__init__))
    assert signature.parameters["gcp_conn_id"].default == "google_cloud_default"


@pytest.mark.parametrize("operator", OPERATORS)
def test_public_methods_have_docstrings(operator: type[TpuOperator]) -> None:
    for each in own_classes(operator):
        assert inspect.getdoc(each)
        for name, value in vars(each).items():
            if inspect.isfunction(value) and not name.startswith("_"):
                assert value.__doc__, f"{each.__name__}.{name}"


def test_airflow_can_store_the_dag_with_its_links() -> None:
    with DAG("with_a_tpu", schedule=None) as dag:
        place = {"store_uri": "/store"}
        reserve = operators.TpuReserveOperator(task_id="reserve", **place)
        create = operators.TpuCreateOperator(task_id="create", **place)
        job = {"job_id": "010-train", "entry_point": "training.train", "arguments": ["--any"]}
        run = operators.TpuRunOperator(task_id="run", **job, **place)
        delete = operators.TpuDeleteOperator(task_id="delete", **place)
        reserve >> create >> run >> delete.as_teardown(setups=[reserve, create])
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    kept = stored.get_task("run")
    assert set(kept.template_fields) == set(run.template_fields)
    assert {link.name for link in kept.operator_extra_links} == {"Run folder", "Cloud TPU"}
    assert stored.get_task("delete").is_teardown
