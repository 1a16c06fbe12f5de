"""The trigger form: what a person sees in it, and what Airflow's server refuses before a run."""

from __future__ import annotations

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


def schema_of(config: type[PipelineConfig | FinetuningConfig], name: str) -> dict[str, Any]:
    """Return a setting's own JSON schema, that of its options as one."""
    section, _, field = name.partition(".")
    model: Any = config.model_fields[section].annotation
    schema = model.model_json_schema()["properties"][field]
    options = schema.pop("anyOf", [schema])
    kinds = [option["type"] for option in options]
    merged = schema | {key: value for option in options for key, value in option.items()}
    return merged | {"type": kinds if len(kinds) > 1 else kinds[0]}


SCHEMAS = {name: schema_of(type(preset), name) for name, (preset, _) in ALL.items()}
_LIMITED = {
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "pattern"),
    *("minLength", "maxLength", "minItems", "maxItems"),
}
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


def test_what_is_usual_comes_first_and_then_the_schema_section_by_section(params: Any) -> None:
    assert sorted(FORM) == sorted(open_settings(PipelineConfig))
    assert list(params) == list(FORM)
    sections: dict[str, list[str]] = {}
    for name in params:
        sections.setdefault(params.get_param(name).schema["section"], []).append(name)
    assert sections.pop("usual") == [
        "corpus.partition",
        "model.lineage_id",
        "model.init_checkpoint",
        "training.max_passes",
        "training.train_steps",
        "budget.max_cost",
        "budget.max_hours",
        "run.dry_run",
    ]
    # "run" has nothing left to show.
    assert list(sections) == [f"advanced: {name}" for name in PipelineConfig.model_fields][1:]
    for title, names in sections.items():
        section = title.removeprefix("advanced: ")
        assert [name.partition(".")[0] for name in names] == [section] * len(names)


def test_a_locked_setting_has_no_field_among_the_usual_ones_either() -> None:
    form = trigger_form(PRESET, ["budget.*", "run.dry_run"])
    assert "training.max_passes" in form
    assert not [name for name in form if name.startswith(("budget.", "run."))]


@pytest.fixture(scope="module")
def all_params(params: Any) -> dict[str, Any]:
    """Return such params by the field's name, each alone: the server checks one after the other."""
    dag = DAG("finetuning", schedule=None, params=FINETUNING_FORM)
    own = DagSerialization.from_dict(DagSerialization.to_dict(dag)).params
    return {
        name: type(own)({name: (params if form is FORM else own).get_param(name)})
        for name, (_, form) in ALL.items()
    }


@pytest.mark.parametrize("name", [name for name, kind in SCHEMAS.items() if "items" in kind])
def test_a_list_is_lines_or_choices_and_never_json(name: str, all_params: dict[str, Any]) -> None:
    """Airflow's editor for JSON shows the list again that was deleted."""
    _, form = ALL[name]
    schema = form[name].schema
    assert "examples" in schema or schema.get("items", {"type": "string"})["type"] == "string"
    preset, _ = ALL[name]
    section, _, field = name.partition(".")
    shown = preset.model_dump(mode="json")[section][field]
    lines = [str(item) for item in shown]
    sent = all_params[name].deep_merge({name: lines}).validate()
    assert with_overrides(preset, sent) == preset


@pytest.mark.parametrize("name", [name for name, kind in SCHEMAS.items() if "items" in kind])
def test_true_is_no_item_of_a_list(name: str) -> None:
    """Python takes it for 1, and Airflow does not look into lists."""
    preset, _ = ALL[name]
    with pytest.raises(ConfigError, match="no true or false"):
        with_overrides(preset, {name: [True]})


def test_each_kind_of_run_has_a_form_of_its_own() -> None:
    assert sorted(FINETUNING_FORM) == sorted(open_settings(FinetuningConfig))
    assert next(iter(FINETUNING_FORM)) == "finetuning.tasks"
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
    # Those of a choice are the choices, which the form shows.
    if "enum" not in param.schema and _LIMITED & {*SCHEMAS[name]}:
        assert " Limits: " in head
    for bound in set(BOUNDS) & set(SCHEMAS[name]):
        limit = SCHEMAS[name][bound]
        assert (str(int(limit)) if limit == int(limit) else f"{limit:g}") in head
    # A person reads them.
    assert not set("^[]{}\\") & set(head.partition(" Limits: ")[2])


@pytest.mark.parametrize("name", list(ALL))
def test_no_field_has_a_limit_that_would_change_what_is_typed(name: str) -> None:
    preset, form = ALL[name]
    schema = form[name].schema
    assert not _LIMITED & {*schema, *schema.get("items", {})}
    # An asterisk is for what must not be left empty.
    may_be_empty = SCHEMAS[name]["type"] == "boolean"
    for empty in (None, []):
        try:
            with_overrides(preset, {name: empty})
        except ConfigError as error:
            may_be_empty |= not any(line.startswith(f"{name}: ") for line in error.violations)
        else:
            may_be_empty = True
    assert ("null" in schema["type"]) == may_be_empty


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
        ("corpus.duplicates", {"type": "string", "enum": ["keep", "exact", "near"]}),
        ("corpus.partition", {"type": ["string", "null"]}),
        ("optimizer.update_learning_rate", {"type": ["string", "number", "null"]}),
        ("training.train_steps", {"type": ["string", "integer"]}),
        ("tpu.zones", {"type": "array"}),
        ("run.dry_run", {"type": ["boolean", "null"]}),
        ("corpus.keep_languages", {"type": ["array", "null"]}),
        ("training.global_batch_size", {"type": ["string", "integer"], "examples": ["2048"]}),
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
    # No list at all is an empty one.
    if "null" not in kinds and ("array" not in kinds or schema.get("minItems")):
        yield None
    yield {"a": 1}


@pytest.mark.parametrize("name", list(ALL))
def test_a_value_out_of_its_limits_is_refused_with_the_setting_named(name: str) -> None:
    preset, _ = ALL[name]
    for value in violations(SCHEMAS[name]):
        with pytest.raises(ConfigError) as refused:
            with_overrides(preset, {name: value})
        assert any(line.startswith(name) for line in refused.value.violations)


@pytest.mark.parametrize("name", list(ALL))
def test_a_value_of_another_type_is_refused_by_the_server(
    all_params: dict[str, Any], name: str
) -> None:
    for value in wrong_kinds(ALL[name][1][name].schema):
        with pytest.raises(ParamValidationError, match=f"param {name}: "):
            all_params[name].deep_merge({name: value}).validate()


def wrong_kinds(schema: dict[str, Any]) -> Iterator[Any]:
    """Yield values that no field of this kind can hold."""
    if "enum" in schema:
        yield "?!"
    if "items" in schema and schema["items"]["type"] == "string":
        yield [5]
    if "null" not in schema["type"]:
        yield None
    yield {"a": 1}


def test_what_is_typed_for_a_number_is_read_as_one_or_refused() -> None:
    typed = {"training.global_batch_size": "64", "optimizer.learning_rate": "2e-5"}
    config = with_overrides(PRESET, typed)
    assert (config.training.global_batch_size, config.optimizer.learning_rate) == (64, 2e-5)
    for text in ("0", "-5", "", "1e9", "64 rows", "2.5"):
        with pytest.raises(ConfigError, match=r"training\.global_batch_size: "):
            with_overrides(PRESET, {"training.global_batch_size": text})


def test_limits_are_told_in_words_by_what_refuses_them_too() -> None:
    with pytest.raises(ConfigError, match="Input should be: small letters, digits and hyphens"):
        with_overrides(PRESET, {"model.lineage_id": "A B"})
    with pytest.raises(ConfigError) as refused:
        with_overrides(PRESET, {"training.global_batch_size": 0, "tpu.zones": ["mars"]})
    assert [line.partition(",")[0] for line in refused.value.violations] == [
        "training.global_batch_size: Input should be greater than or equal to 1",
        "tpu.zones.0: Input should be: a zone of Google Cloud",
    ]


@pytest.mark.parametrize("name", list(ALL))
def test_a_value_at_its_limit_is_not(all_params: dict[str, Any], name: str) -> None:
    params, schema = all_params[name], SCHEMAS[name]
    for value in [schema[bound] for bound in ("minimum", "maximum") if bound in schema]:
        assert params.deep_merge({name: value}).validate()[name] == value
    for choice in schema.get("enum", []):
        assert params.deep_merge({name: choice}).validate()[name] == choice
    if "null" in ALL[name][1][name].schema["type"]:
        assert params.deep_merge({name: None}).validate()[name] is None


def patterns(schema: Any) -> Iterator[str]:
    """Yield every pattern in a field's schema."""
    if isinstance(schema, dict):
        for key, value in schema.items():
            if key == "pattern" and isinstance(value, str):
                yield value
            else:
                yield from patterns(value)


@pytest.mark.parametrize("name", ["model.lineage_id", "tpu.accelerator_type"])
def test_a_text_with_a_line_break_behind_it_is_refused(name: str) -> None:
    # By validate: the form has no pattern, and Airflow's check of one would let it through.
    assert list(patterns(SCHEMAS[name]))
    assert list(patterns(FORM[name].schema)) == []
    section, _, field = name.partition(".")
    value = getattr(getattr(PRESET, section), field)
    with pytest.raises(ConfigError, match=f"{name}: "):
        with_overrides(PRESET, {name: f"{value}\n"})


def test_each_setting_has_something_that_is_refused() -> None:
    # So that the test above cannot pass by trying nothing.
    assert all(
        len(list(violations(schema))) >= 2
        for schema in SCHEMAS.values()
        if {*_LIMITED, "enum", "items"} & set(schema)
    )
