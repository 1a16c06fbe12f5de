"""Why a preset sets what it sets: the comment at the end of each of its lines."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import NamedTuple

from pipeline_config.loading import FOLDERS, Schema

_LINE = re.compile(r"(?P<name>[a-z_]+) *= *(?P<value>.*?) *(?:# *(?P<reason>.+))?")
_SECTION = re.compile(r"\[(?P<section>[a-z_]+)\]")


class Reason(NamedTuple):
    """A setting of a preset, its value as in the file, and the reason that stands beside it."""

    name: str
    value: str
    reason: str


def reasons(preset: str, schema: Schema) -> Iterator[Reason]:
    """Yield what a preset's own file sets, in its order; not what it takes from another.

    :raises ValueError: a line is written in a way that is not read here.
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
