"""Makes Airflow's trigger form from the configuration schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from airflow.sdk import Param

from pipeline_config import FinetuningConfig, PipelineConfig
from pipeline_config.docs_table import limits
from pipeline_config.requests import form_sections

_SHOWN = ("description", "enum", "examples", "items", "section", "title", "type")
"""What a param's schema says: what kind of field it is, and its words. It has no limits: Airflow's
fields put a number that is out of them to the nearest, and cut a text off, both without a word.
``validate`` refuses what is out of its limits, with all reasons at once."""


def trigger_form(
    defaults: PipelineConfig | FinetuningConfig, locked: Iterable[str] = ()
) -> dict[str, Param]:
    """Return one DAG param per setting, named ``section.name``: what is usual first.

    What only the installation sets has no field: a run that changes it is refused.

    Airflow checks types and choices when a run is triggered. Limits, rules that join settings, and
    unknown names are checked by the run's first task.

    :param defaults: what the form shows before anything is typed.
    :param locked: patterns of further settings without a field.
    """
    values = defaults.model_dump(mode="json")
    sections: dict[str, Any] = {
        section: field.annotation for section, field in type(defaults).model_fields.items()
    }
    schemas = {
        section: model.model_json_schema()["properties"] for section, model in sections.items()
    }
    form = {}
    for title, names in form_sections(type(defaults), locked).items():
        for full_name in names:
            section, _, name = full_name.partition(".")
            schema, value = schemas[section][name], values[section][name]
            described = schema | {"description": _help(schema, value), "section": title}
            form[full_name] = Param(value, **_param_schema(name, described, value))
    return form


def _help(schema: dict[str, Any], value: Any) -> str:
    """Return what a field means, its limits, its default, and the preset's value if it differs.

    The form shows no value but the present one.
    """
    parts = [schema["description"]]
    # A choice shows what there is to choose from.
    if "enum" not in schema and (allowed := limits(schema)):
        parts.append(f"Limits: {allowed.replace('`', '')}.")
    default = schema.get("default")
    preset = f"; this preset: {_words(value)}" if value != default else ""
    parts.append(f"Default: {_words(default)}{preset}.")
    return " ".join(parts)


def _words(value: Any) -> str:
    if value is None or value == []:
        return "empty"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


def _param_schema(name: str, schema: dict[str, Any], value: Any) -> dict[str, Any]:
    """Turn a field's JSON schema into what the form understands."""
    wanted = schema | {"title": name}
    # Pydantic writes "text or nothing" as anyOf; the form knows only a list of types.
    kinds = [option["type"] for option in wanted.get("anyOf", [wanted])]
    if kinds == ["array"]:
        items = wanted.pop("items")
        # With examples the form offers them to choose from; else it shows one line per item. Of
        # numbers it would make an editor for JSON, which shows the list again that was deleted.
        if items["type"] == "string":
            wanted["items"] = {key: items[key] for key in ("type", "enum") if key in items}
        if "enum" in items:
            wanted["examples"] = items["enum"]
    elif {"integer", "number"} & {*kinds}:
        # Airflow's field for numbers makes 19 of 1e9 without a word, so they have one for text,
        # which validate reads numbers of. Of several types Airflow makes a large field, unless
        # there are examples, which a field for text offers.
        kinds = ["string", *(kind for kind in kinds if kind != "string")]
        wanted["examples"] = [] if value is None else [str(value)]
    # A field that knows no null gets an asterisk: it must not be left empty. A list may be, and
    # a switch cannot.
    if kinds == ["boolean"] or (kinds == ["array"] and not wanted.get("minItems")):
        kinds.append("null")
    wanted["type"] = kinds[0] if len(kinds) == 1 else kinds
    return {key: wanted[key] for key in _SHOWN if key in wanted}


def whole(pattern: str) -> str:
    r"""Return a pattern of a form whose ``$`` is the end of the text and nothing before it.

    Airflow's check is Python's ``re``, where ``$`` is also before a line break at the end. The
    form's is a browser's, which knows no ``\Z``; both know this.
    """
    return re.sub(r"\$$", r"$(?!\\n)", pattern)
