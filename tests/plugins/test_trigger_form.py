"""The trigger form: what a person sees in it, and what Airflow's server refuses before a run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.exceptions import ParamValidationError
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from pipeline_config import (
    ConfigError,
    FinetuningConfig,
    PipelineConfig,
    load_finetuning_preset,
    load_preset,
    with_overrides,
)
from pipeline_config.loading import fields
from pipeline_config.requests import locked_settings
from trigger_form import trigger_form

PRESET = load_preset("bert_base_v5e")
FORM = trigger_form(PRESET)
FINETUNING = load_finetuning_preset("finetuning_base_v5e")
FINETUNING_FORM = trigger_form(FINETUNING)
# What both have is tried once.
ALL = dict.fromkeys(FINETUNING_FORM, (FINETUNING, FINETUNING_FORM))
ALL |= dict.fromkeys(FORM, (PRESET, FORM))
BOUNDS = {"minimum": -1, "maximum": 1, "exclusiveMinimum": 0, "exclusiveMaximum": 0}


def open_settings(schema: type[PipelineConfig | FinetuningConfig]) -> list[str]:
    """Return the names of the settings that a request may change, in the order of the schema."""
    locked = locked_settings(schema, [])
    return [name for name, _ in fields(schema) if name not in locked]


@pytest.fixture(scope="module")
def params() -> Any:
    """Return the params as the API server has them: of the DAG that the database holds."""
    dag = DAG("form", schedule=None, params=trigger_form(PRESET))
    return DagSerialization.from_dict(DagSerialization.to_dict(dag)).params


def test_settings_come_in_the_order_of_the_schema_one_section_after_the_other(params: Any) -> None:
    assert list(FORM) == open_settings(PipelineConfig)
    assert list(params) == list(FORM)
    sections = [params.get_param(name).schema["section"] for name in params]
    assert [section for section, _ in itertools.groupby(sections)] == list(
        PipelineConfig.model_fields
    )
    assert all(name.startswith(f"{params.get_param(name).schema['section']}.") for name in params)


@pytest.fixture(scope="module")
def all_params(params: Any) -> dict[str, Any]:
    """Return such params by the field's name, each alone: the server checks one after the other."""
    dag = DAG("finetuning", schedule=None, params=FINETUNING_FORM)
    own = DagSerialization.from_dict(DagSerialization.to_dict(dag)).params
    return {
        name: type(own)({name: (params if form is FORM else own).get_param(name)})
        for name, (_, form) in ALL.items()
    }


def test_each_kind_of_run_has_a_form_of_its_own() -> None:
    assert list(FINETUNING_FORM) == open_settings(FinetuningConfig)
    assert FINETUNING_FORM["finetuning.learning_rates"].schema["type"] == "array"
    assert "Default: 3e-05." in str(FINETUNING_FORM["finetuning.learning_rates"].description)


@pytest.mark.parametrize("name", list(ALL))
def test_each_field_says_what_it_means_and_what_it_may_be(name: str) -> None:
    preset, form = ALL[name]
    param = form[name]
    section, _, field = name.partition(".")
    assert param.schema["title"] == field
    assert param.description is not None
    head, _, rest = param.description.partition(" Default: ")
    assert len(head) >= 15
    default = type(preset)().model_dump(mode="json")[section][field]
    value = getattr(getattr(preset, section), field)
    assert rest.startswith("empty" if default in (None, []) else str(_shown(default)))
    assert ("; this preset: " in rest) == (default != value)
    limited = {*BOUNDS, "pattern", "minLength", "maxLength", "minItems", "maxItems"}
    # Those of a choice are the choices, which the form shows.
    if limited & set(param.schema) and "enum" not in param.schema:
        assert " Limits: " in head
    for bound in set(BOUNDS) & set(param.schema):
        assert f"{param.schema[bound]:g}" in head or str(param.schema[bound]) in head


def _shown(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return value[0] if isinstance(value, list) else value


def test_the_form_begins_with_the_values_of_the_preset(params: Any) -> None:
    assert params.validate() == {
        f"{section}.{name}": value
        for section, values in PRESET.model_dump(mode="json").items()
        for name, value in values.items()
        if f"{section}.{name}" in FORM
    }
    assert "Default: 1000; this preset: auto." in str(FORM["training.train_steps"].description)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("run.dry_run", {"type": "boolean"}),
        ("corpus.duplicates", {"type": "string", "enum": ["keep", "exact", "near"]}),
        ("corpus.partition", {"type": ["string", "null"]}),
        ("optimizer.update_learning_rate", {"type": ["number", "null"]}),
        # The form has a text field for the first of several types; what is typed may be a number.
        ("training.train_steps", {"type": ["string", "integer"]}),
        ("tpu.zones", {"type": "array"}),
        ("promotion.export_formats", {"examples": ["hugging_face", "saved_model"]}),
    ],
)
def test_each_kind_of_setting_gets_its_kind_of_field(name: str, kind: dict[str, Any]) -> None:
    # The form chooses a switch, a list, a text or a number by these.
    assert {key: FORM[name].schema[key] for key in kind} == kind


def violations(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield values that a field must not have: just outside each of its limits."""
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    for bound, step in BOUNDS.items():
        if bound in schema:
            yield schema[bound] + step
    if "maxLength" in schema:
        yield "x" * (schema["maxLength"] + 1)
    if schema.get("minLength"):
        yield ""
    if "enum" in schema or ("pattern" in schema and "string" in kinds):
        yield "?!"
    if "array" in kinds:
        items = schema["items"]
        is_plain_text = items["type"] == "string" and not {"enum", "pattern"} & set(items)
        yield [5] if is_plain_text else ["?!"]
        if "maxItems" in schema:
            yield ["en"] * (schema["maxItems"] + 1)
        if schema.get("minItems"):
            yield []
    if "null" not in kinds:
        yield None
    yield {"a": 1}


@pytest.mark.parametrize("name", list(ALL))
def test_a_value_out_of_its_limits_is_refused_by_the_server(
    all_params: dict[str, Any], name: str
) -> None:
    preset, form = ALL[name]
    for value in violations(form[name].schema):
        with pytest.raises(ParamValidationError, match=f"param {name}: "):
            all_params[name].deep_merge({name: value}).validate()
        # And by what reads the values of a run that came another way.
        with pytest.raises(ConfigError):
            with_overrides(preset, {name: value})


@pytest.mark.parametrize("name", list(ALL))
def test_a_value_at_its_limit_is_not(all_params: dict[str, Any], name: str) -> None:
    params, schema = all_params[name], ALL[name][1][name].schema
    for value in [schema[bound] for bound in ("minimum", "maximum") if bound in schema]:
        assert params.deep_merge({name: value}).validate()[name] == value
    for choice in schema.get("enum", []):
        assert params.deep_merge({name: choice}).validate()[name] == choice
    if "null" in schema["type"]:
        assert params.deep_merge({name: None}).validate()[name] is None


def patterns(schema: Any) -> Iterator[str]:
    """Yield every pattern in a field's schema."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "pattern" and isinstance(value, str):
                yield value
            else:
                yield from patterns(value)


@pytest.mark.parametrize("name", list(ALL))
def test_no_pattern_of_the_form_takes_a_line_break_at_the_end(name: str) -> None:
    for pattern in patterns(ALL[name][1][name].schema):
        if "$" in pattern:
            assert pattern.endswith(r"$(?!\n)")


def test_a_line_break_behind_a_value_is_refused_by_the_server(params: Any) -> None:
    for name in ("model.lineage_id", "tpu.accelerator_type", "training.train_steps"):
        value = {"training.train_steps": "auto"}.get(name, PRESET.model.lineage_id)
        value = PRESET.tpu.accelerator_type if name == "tpu.accelerator_type" else value
        assert params.deep_merge({name: value}).validate()[name] == value
        with pytest.raises(ParamValidationError, match=f"param {name}: "):
            params.deep_merge({name: f"{value}\n"}).validate()


def test_each_setting_has_something_that_is_refused() -> None:
    # So that the test above cannot pass by trying nothing.
    assert all(
        len(list(violations(form[name].schema))) >= 2
        for name, (_, form) in ALL.items()
        if _limited(form[name])
    )


def _limited(param: Any) -> bool:
    return bool({*BOUNDS, "enum", "pattern", "minLength", "maxLength", "items"} & set(param.schema))
