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
"""Schema keywords that a param keeps: the kind of field and its texts, but no limits. Airflow's
fields silently clamp a number that is out of limits and truncate a text. ``validate`` refuses
values that are out of limits, with all reasons at once."""


def trigger_form(
    defaults: PipelineConfig | FinetuningConfig, locked: Iterable[str] = ()
) -> dict[str, Param]:
    """Return one DAG param per setting, named ``section.name``, the usual settings first.

    Settings that only the installation may set have no field: a run that changes one is refused.

    Airflow checks types and choices when a run is triggered. The run's first task checks limits,
    rules across settings, and unknown names.

    :param defaults: values that the form shows at first.
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
    """Return a field's meaning, limits and default, and the preset's value if it differs.

    The form itself shows only the current value.
    """
    parts = [schema["description"]]
    # A choice field shows its options itself.
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
    """Convert a field's JSON schema to the subset that the form understands."""
    wanted = schema | {"title": name}
    # Pydantic writes "text or nothing" as anyOf; the form knows only a list of types.
    kinds = [option["type"] for option in wanted.get("anyOf", [wanted])]
    if kinds == ["array"]:
        items = wanted.pop("items")
        # With examples the form offers them as choices; else it shows one line per item. For
        # numbers it would make a JSON editor, which restores a list that was deleted.
        if items["type"] == "string":
            wanted["items"] = {key: items[key] for key in ("type", "enum") if key in items}
        if "enum" in items:
            wanted["examples"] = items["enum"]
    elif {"integer", "number"} & {*kinds}:
        # Airflow's number field silently turns 1e9 into 19, so numbers get a text field, from
        # which validate parses them. For several types Airflow makes a large field unless there
        # are examples, which a text field offers.
        kinds = ["string", *(kind for kind in kinds if kind != "string")]
        wanted["examples"] = [] if value is None else [str(value)]
    # A field without null gets an asterisk: it must not be left empty. A list may be empty, and a
    # switch cannot be.
    if kinds == ["boolean"] or (kinds == ["array"] and not wanted.get("minItems")):
        kinds.append("null")
    wanted["type"] = kinds[0] if len(kinds) == 1 else kinds
    return {key: wanted[key] for key in _SHOWN if key in wanted}


def whole(pattern: str) -> str:
    r"""Return a form's pattern changed so that ``$`` matches only at the very end of the text.

    Airflow checks with Python's ``re``, where ``$`` also matches before a trailing line break. The
    form checks in a browser, which knows no ``\Z``; both understand this pattern.
    """
    return re.sub(r"\$$", r"$(?!\\n)", pattern)
