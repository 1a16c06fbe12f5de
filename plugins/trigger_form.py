"""Makes Airflow's trigger form from the configuration schema."""

from __future__ import annotations

from typing import Any

from airflow.sdk import Param

from pipeline_config import PipelineConfig


def trigger_form(defaults: PipelineConfig) -> dict[str, Param]:
    """Return one DAG param per setting, named ``section.name`` and grouped by section.

    Airflow checks each value against its own limits when a run is triggered. Rules that join
    settings, and unknown names, are refused by the run's first task.

    :param defaults: what the form shows before anything is typed.
    """
    values = defaults.model_dump(mode="json")
    form = {}
    for section, field in PipelineConfig.model_fields.items():
        model: Any = field.annotation
        for name, schema in model.model_json_schema()["properties"].items():
            form[f"{section}.{name}"] = Param(
                values[section][name], section=section, **_param_schema(name, schema)
            )
    return form


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
    return wanted
