"""Makes Airflow's trigger form from the configuration schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from airflow.sdk import Param

from pipeline_config import FinetuningConfig, PipelineConfig
from pipeline_config.docs_table import limits
from pipeline_config.requests import locked_settings


def trigger_form(
    defaults: PipelineConfig | FinetuningConfig, locked: Iterable[str] = ()
) -> dict[str, Param]:
    """Return one DAG param per setting, named ``section.name`` and grouped by section.

    What only the installation sets has no field: a run that changes it is refused.

    Airflow checks each value against its own limits when a run is triggered. Rules that join
    settings, and unknown names, are refused by the run's first task.

    :param defaults: what the form shows before anything is typed.
    :param locked: patterns of further settings without a field.
    """
    hidden = locked_settings(type(defaults), locked)
    values = defaults.model_dump(mode="json")
    form = {}
    for section, field in type(defaults).model_fields.items():
        model: Any = field.annotation
        for name, schema in model.model_json_schema()["properties"].items():
            if f"{section}.{name}" in hidden:
                continue
            value = values[section][name]
            described = schema | {"description": _help(schema, value)}
            form[f"{section}.{name}"] = Param(
                value, section=section, **_param_schema(name, described)
            )
    return form


def _help(schema: dict[str, Any], value: Any) -> str:
    """Return what a field means, its limits, its default, and the preset's value if it differs.

    The form shows the limits of some kinds of numbers only, and no value but the present one.
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


def _param_schema(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """Turn a field's JSON schema into what the form understands."""
    wanted = {key: value for key, value in schema.items() if key != "default"} | {"title": name}
    # Pydantic writes "text or nothing" as anyOf; the form knows only a list of types.
    for option in wanted.pop("anyOf", []):
        kind = option.pop("type")
        wanted["type"] = [*wanted.get("type", []), kind]
        wanted |= option
    if wanted.get("type") == "array":
        # With examples the form offers them to choose from; without, it shows one line per item.
        if "enum" in wanted["items"]:
            wanted["examples"] = wanted["items"]["enum"]
        wanted.setdefault("description_md", wanted.get("description"))
    patterns: dict[str, Any] = _whole(wanted)
    return patterns


def _whole(schema: Any) -> Any:
    """Return a JSON schema whose patterns take no line break at the end."""
    if isinstance(schema, list):
        return [_whole(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: whole(value) if key == "pattern" and isinstance(value, str) else _whole(value)
        for key, value in schema.items()
    }


def whole(pattern: str) -> str:
    r"""Return a pattern of a form whose ``$`` is the end of the text and nothing before it.

    Airflow's check is Python's ``re``, where ``$`` is also before a line break at the end. The
    form's is a browser's, which knows no ``\Z``; both know this.
    """
    return re.sub(r"\$$", r"$(?!\\n)", pattern)
