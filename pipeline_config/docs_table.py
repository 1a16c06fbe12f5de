"""Writes ``docs/reference/config.md`` from the schema, the rules and the presets."""

from __future__ import annotations

import dataclasses
import json
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pipeline_config.accelerators import BELIEVED, READ, ZONES_INTRODUCTION, by_region
from pipeline_config.finetuning import FinetuningConfig
from pipeline_config.finetuning_rules import FINETUNING_RULES
from pipeline_config.loading import (
    FOLDERS,
    Schema,
    fields,
    load_finetuning_preset,
    load_preset,
    preset_names,
)
from pipeline_config.patterns import IN_WORDS
from pipeline_config.rental_rules import RENTAL_RULES
from pipeline_config.rules import RULES
from pipeline_config.schema import PipelineConfig
from pipeline_config.sections import Mark
from pipeline_config.settings import Settings, load_settings

_LINE = re.compile(r"(?P<name>[a-z_]+) *= *(?P<value>.*?) *(?:# *(?P<reason>.+))?")
_SECTION = re.compile(r"\[(?P<section>[a-z_]+)\]")


class Reason(NamedTuple):
    """A setting of a preset, its value as in the file, and the reason in the line's comment."""

    name: str
    value: str
    reason: str


def reasons(preset: str, schema: Schema) -> Iterator[Reason]:
    """Yield the settings in a preset's own file, in order, without those it inherits.

    :raises ValueError: a line has a form that is not supported here.
    """
    text = (FOLDERS[schema] / f"{preset}.toml").read_text(encoding="utf-8")
    content = tomllib.loads(text)
    section = ""
    found: list[Reason] = []
    for line in map(str.strip, text.splitlines()):
        if match := _SECTION.fullmatch(line.partition("#")[0].strip()):
            section = match["section"]
        elif (match := _LINE.fullmatch(line)) and section:
            name = f"{section}.{match['name']}"
            if tomllib.loads(f"x = {match['value']}")["x"] != content[section][match["name"]]:
                raise ValueError(f"{preset}: {line!r} is more than a value and its reason.")
            found.append(Reason(name, match["value"].strip('"'), match["reason"] or ""))
    expected = {f"{s}.{n}" for s, part in content.items() if isinstance(part, dict) for n in part}
    if {reason.name for reason in found} != expected:
        raise ValueError(f"{preset}: a setting is not written on one line.")
    yield from found


_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m pipeline_config docs`; change the schema, not this page. -->

A run starts from a preset; single settings are replaced by name, as `section.name`:

| where | how |
|---|---|
| Airflow's trigger form | one field per setting, filled in from the preset |
| REST, Airflow's CLI | `conf` = `{"training.train_steps": 2000, "corpus.partition": "day1"}` |
| command lines | `--preset smoke --set training.train_steps=2000 --set tpu.zones=us-west4-a` |

A setting marked *set by the installation only* is changed in the installation's preset: a request
that names another value is refused, and the form has no field for it.
`REPRETRAIN_LOCKED_SETTINGS` locks more, such as `promotion.*`. The files that a request names lie
below `REPRETRAIN_INPUT_ROOTS`, below what the presets name, or, models and vocabularies, below a
lineage's `versions` in the store. A command that a person runs has no such limits.

Unknown names, values out of their limits and combinations that cannot work are refused before
anything is spent, one line per violation:
`python -m preflight check-config --preset smoke --set masking.max_seq_length=512`.
The configuration of a run is kept as `config.json` in its folder and beside the model it makes.
`python -m pipeline_config show --preset smoke` prints a preset in full. What a fine-tuning run of
the DAG `bert_finetuning` has of its own is [at the end](#fine-tuning).

What does not differ from run to run is read from the environment:
"""


_OTHERS = """\
Variables of other tools are on the pages of what uses them: `OTEL_…` and `AIRFLOW__OPENLINEAGE__…`
in [lineage and traces](../operate/lineage-and-traces.md), `MLFLOW_…` in
[MLflow](../guides/sharing.md), `HF_TOKEN` in [Hugging Face Hub](../guides/hugging-face-hub.md),
`GOOGLE_…` in the [runbook](../operate/alerts.md#runbook).
"""

_FINETUNING = """\
# Fine-tuning

A run of the DAG `bert_finetuning` has the sections `run`, `beam`, `tpu`, `budget` and `hang` as
above, with their rules; each TPU of `finetuning.parallel_tpus` has the whole of the budget. What a
task is, its own `task.toml` says: [finetuning-data.md](finetuning-data.md). Presets in full:
`python -m pipeline_config show --finetuning --preset finetuning_smoke`.
"""


def config_page() -> str:
    """Return the whole page as Markdown."""
    own = [
        name for name in FinetuningConfig.model_fields if name not in PipelineConfig.model_fields
    ]
    return "\n".join(
        [
            _INTRODUCTION,
            _environment(),
            _OTHERS,
            *_sections(PipelineConfig, PipelineConfig.model_fields),
            *_rules("Rules that join settings", (*RULES, *RENTAL_RULES)),
            *_presets("Presets", PipelineConfig, load_preset),
            *_reasons(PipelineConfig),
            *_zones(),
            _FINETUNING,
            *_sections(FinetuningConfig, own),
            *_rules("Rules of fine-tuning", FINETUNING_RULES),
            *_presets("Presets of fine-tuning", FinetuningConfig, load_finetuning_preset),
            *_reasons(FinetuningConfig),
        ]
    )


def _environment() -> str:
    defaults = load_settings({})
    rows = [
        (
            f"`REPRETRAIN_{item.name.upper()}`",
            item.metadata["help"],
            _default(getattr(defaults, item.name)),
        )
        for item in dataclasses.fields(Settings)
    ]
    return _table(("variable", "meaning", "default"), rows)


def _default(value: object) -> str:
    """Return a setting's default as it would be written into its environment variable."""
    if isinstance(value, tuple):
        text = ",".join(value)
    elif isinstance(value, bool):
        text = str(int(value))
    else:
        text = str(value).replace(str(Path.home()), "~")
    return f"`{text}`" if text else ""


def _sections(schema: Schema, wanted: Iterable[str]) -> Iterator[str]:
    for section in wanted:
        model: Any = schema.model_fields[section].annotation
        yield f"## {section}\n"
        yield f"{model.__doc__.splitlines()[0]}\n"
        rows = [
            (
                f"`{section}.{name}`",
                _type(schema),
                _value(schema.get("default")),
                limits(schema),
                schema.get("description", "") + _marks(model.model_fields[name].metadata),
            )
            for name, schema in model.model_json_schema()["properties"].items()
        ]
        yield _table(("name", "type", "default", "limits", "description"), rows)


def _marks(metadata: Iterable[object]) -> str:
    return " **Set by the installation only.**" if Mark.BY_INSTALLATION in metadata else ""


def _rules(title: str, rules: Iterable[Callable[[Any], Iterator[str]]]) -> Iterator[str]:
    yield f"## {title}\n"
    for rule in rules:
        yield f"- {(rule.__doc__ or '').splitlines()[0]}"
    yield ""


def _presets(
    title: str, schema: Schema, load: Callable[[str], PipelineConfig | FinetuningConfig]
) -> Iterator[str]:
    yield f"## {title}\n"
    yield "Settings in which a preset differs from the defaults; the others are as above.\n"
    names = preset_names(schema)
    presets = [_flat(load(name)) for name in names]
    default = _flat(schema())
    rows = [
        (f"`{name}`", _value(default[name]), *(_value(preset[name]) for preset in presets))
        for name, _ in fields(schema)
        if any(preset[name] != default[name] for preset in presets)
    ]
    yield _table(("name", "default", *(f"`{name}`" for name in names)), rows)


def _reasons(schema: Schema) -> Iterator[str]:
    """Yield tables with the reasons for the values of all presets but the smoke ones."""
    for preset in preset_names(schema):
        if not preset.endswith("smoke"):
            yield f"### Why `{preset}` has these values\n"
            rows = [
                (f"`{name}`", f"`{value}`", why) for name, value, why in reasons(preset, schema)
            ]
            yield _table(("setting", "value", "reason"), rows)


def _zones() -> Iterator[str]:
    """Yield the table of zones by TPU type."""
    yield "## Zones\n"
    yield f"{ZONES_INTRODUCTION}\n"
    rows = [
        (f"`{family}-N`", region, ", ".join(zones), basis)
        for family in READ
        for basis, known in (("read", READ), ("believed", BELIEVED))
        for region, zones in by_region(known.get(family, ())).items()
    ]
    yield _table(("type", "region", "zones", "basis"), rows)


def _flat(config: PipelineConfig | FinetuningConfig) -> dict[str, Any]:
    content = config.model_dump(mode="json")
    return {f"{section}.{name}": v for section, part in content.items() for name, v in part.items()}


def _type(schema: dict[str, Any]) -> str:
    options = schema.get("anyOf", [schema])
    words = {"string": "text", "null": "empty"}
    kinds = [
        f"list of {words.get(option['items']['type'], option['items']['type'] + 's')}"
        if option["type"] == "array"
        else words.get(option["type"], option["type"])
        for option in options
    ]
    return "choice" if "enum" in schema else " or ".join(kinds)


def limits(schema: dict[str, Any]) -> str:
    """Return the limits or choices of a setting in words; empty if it has none.

    :param schema: the setting's own JSON schema.
    """
    merged = {key: v for option in schema.get("anyOf", []) for key, v in option.items()} | schema
    if choices := merged.get("enum", merged.get("items", {}).get("enum")):
        return ", ".join(f"`{choice}`" for choice in choices)
    return ", ".join(
        [*_bounds(merged), *(f"each {part}" for part in _bounds(merged.get("items", {})))]
    )


def _bounds(schema: dict[str, Any]) -> list[str]:
    parts = []
    for key, words in (
        ("minimum", "at least {}"),
        ("exclusiveMinimum", "above {}"),
        ("maximum", "at most {}"),
        ("exclusiveMaximum", "below {}"),
        ("minLength", "not empty"),
        ("maxLength", "at most {} characters"),
        ("minItems", "at least {} item"),
        ("maxItems", "at most {} items"),
    ):
        if key in schema:
            limit = schema[key]
            parts.append(words.format(int(limit) if limit == int(limit) else f"{limit:g}"))
    if "pattern" in schema:
        parts.append(IN_WORDS[schema["pattern"]])
    return parts


def _value(value: Any) -> str:
    return "" if value is None else f"`{value if isinstance(value, str) else json.dumps(value)}`"


def _table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    # An unescaped bar would end the cell, even inside code.
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells) + "\n"
