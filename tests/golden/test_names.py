"""Names that stores, Airflow's database and users hold are the ones that they have held so far."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tests.golden.write import NAMES, extracted

VANISHED = """\
{count} name(s) VANISHED or were renamed:
{names}
Stores that exist, tasks that wait in Airflow's database, or people's configurations and scripts
have them. Formats refuse keys that they do not know: one renamed key makes every store unreadable.
Put the old names back; or write a migration, test it on the old files, and say so in docs/.
"""
APPEARED = """\
{count} name(s) APPEARED:
{names}
If they are meant to be new, and old files can be read without them, write them down:
    python -m tests.golden.write && python -m tests.golden.build_store
"""


def test_no_name_that_somebody_holds_has_changed() -> None:
    now = extracted()
    del now["trigger samples"]
    message = differences(json.loads(NAMES.read_text()), now)
    assert not message, f"\n{message}"


def differences(kept: dict[str, Any], now: dict[str, Any]) -> str:
    """Return what has changed, for people; empty: nothing."""
    before, after = set(flat(kept)), set(flat(now))
    return "\n".join(
        text.format(count=len(found), names="\n".join(f"  {name}" for name in sorted(found)))
        for text, found in ((VANISHED, before - after), (APPEARED, after - before))
        if found
    )


def flat(content: Any, *path: str) -> Iterator[str]:
    """Yield every name with the sections that it is in."""
    if isinstance(content, dict):
        for name, inner in content.items():
            yield " / ".join((*path, name))
            yield from flat(inner, *path, name)
    else:
        yield from (" / ".join((*path, name)) for name in content)


def test_a_difference_is_told_by_its_name() -> None:
    message = differences(
        {"formats": {"holder 1": ["token: string"]}}, {"formats": {"holder 1": ["fence: string"]}}
    )
    assert "  formats / holder 1 / token: string\n" in message.partition("APPEARED")[0]
    assert "  formats / holder 1 / fence: string\n" in message.partition("APPEARED")[2]
    assert not differences({"make": ["up"]}, {"make": ["up"]})


def test_the_list_is_not_empty_anywhere() -> None:
    kept = json.loads(NAMES.read_text())
    assert all(kept.values())
    # Fewer of them than there were would mean that they are not found any more.
    assert len(kept["formats"]) > 50
    assert len(kept["commands"]) > 25
    assert len(kept["store"]) > 100
