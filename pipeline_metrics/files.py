"""Writes the files that are made from the metrics: rules, dashboards, tables of the docs page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline_config.settings import Settings, load_settings
from pipeline_metrics.catalogue import METRICS, Metric
from pipeline_metrics.dashboards import DASHBOARDS, dashboard_file
from pipeline_metrics.rules import DOCUMENT, Rule, rule_file, rules

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / "docker" / "compose" / "observe"
BEGIN, END = "<!-- written by `make docs`: {} -->", "<!-- end -->"

RULES = "rules.yaml"


def contents(settings: Settings) -> dict[str, str]:
    """Return the contents of the files by their paths.

    JSON is also YAML, so the rules need no YAML library.
    """
    found = {RULES: _json(rule_file(settings))}
    for dashboard in DASHBOARDS:
        found[f"dashboards/{dashboard.uid}.json"] = _json(dashboard_file(dashboard))
    return found


def write(folder: Path, settings: Settings) -> Iterator[Path]:
    """Yield the path of each file once it is written.

    :raises OSError: a file cannot be written.
    """
    for name, text in contents(settings).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        yield path


def write_for_repository() -> Iterator[Path]:
    """Yield each path once it is written: this repository's own files, and the page of the tables.

    They are made with the default settings.
    """
    settings = load_settings({})
    yield from write(FOLDER, settings)
    page = REPOSITORY / DOCUMENT
    page.write_text(with_tables(page.read_text(), settings))
    yield page


def with_tables(page: str, settings: Settings) -> str:
    """Return the page with its generated parts updated."""
    for name, lines in (
        ("metrics", _metric_table()),
        ("rules", _rule_sections(settings)),
    ):
        begin = BEGIN.format(name)
        before, _, rest = page.partition(f"{begin}\n")
        _, _, after = rest.partition(f"{END}\n")
        page = "\n".join([before + begin, "", *lines, "", END, after])
    return page


def _metric_table() -> Iterator[str]:
    yield "| metric | type | labels | unit | what |"
    yield "|---|---|---|---|---|"
    for metric in METRICS:
        yield _metric_row(metric)


def _metric_row(metric: Metric) -> str:
    labels = ", ".join(f"`{label}`" for label in metric.labels)
    return f"| `{metric.full_name}` | {metric.kind} | {labels} | {metric.unit} | {metric.help} |"


def _rule_sections(settings: Settings) -> Iterator[str]:
    for number, rule in enumerate(rules(settings)):
        if number:
            yield ""
        yield from _rule_section(rule)


def _rule_section(rule: Rule) -> Iterator[str]:
    minutes = rule.hold.total_seconds() / 60
    held = f"for {minutes:g} minutes" if minutes else "at once"
    yield f"### {rule.name}"
    yield ""
    yield f"`{rule.query}`, {held}; severity `{rule.severity or 'of the alert'}`."
    yield ""
    yield rule.action


def _json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"
