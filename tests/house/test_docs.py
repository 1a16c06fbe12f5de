"""The documentation as a whole: each page is in the site's menu, each link leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
BEGINNINGS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / ".github").rglob("*.md")),
]
LINK = re.compile(r"\]\((?!https?://|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ +(.*?) *$", re.MULTILINE)
CODE = re.compile(r"^( *)```.*?^\1```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


class Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without calling what its tags name."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)


def pages_of(menu: list[object]) -> Iterator[str]:
    for entry in menu:
        if isinstance(entry, str):
            yield entry
        else:
            assert isinstance(entry, dict)
            for below in entry.values():
                yield from [below] if isinstance(below, str) else pages_of(below)


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(r"^( *)```.*?^\1```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    plain = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", h) for h in HEADING.findall(text))
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in plain}


def test_every_page_is_in_the_menu_once() -> None:
    menu = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)["nav"]  # noqa: S506
    assert sorted(pages_of(menu)) == [page.relative_to(DOCS).as_posix() for page in PAGES]


@pytest.mark.parametrize("page", [*BEGINNINGS, *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for target, anchor in LINK.findall(CODE.sub("", page.read_text())):
        there = (page.parent / target).resolve() if target else page
        is_dead = not there.exists()
        if anchor and not is_dead:
            is_dead = anchor not in anchors(there)
        if is_dead:
            dead.append(f"{target}#{anchor}")
    assert not dead


def prose(page: Path) -> Iterator[str]:
    """Yield a page's lines but for tables, code, pictures and what `make docs` has written."""
    own = page.read_text().partition("<!-- written by `make docs`")[0]
    for line in re.sub(r"^( *)```.*?^\1```$", "", own, flags=re.MULTILINE | re.DOTALL).split("\n"):
        if not line.lstrip().startswith(("|", "![", "<", "`")):
            yield re.sub(r"\]\([^)]*\)", "]", line)


@pytest.mark.parametrize("page", [*BEGINNINGS, *PAGES], ids=lambda p: str(p.relative_to(ROOT)))
def test_prose_has_lines_of_at_most_100_characters(page: Path) -> None:
    if page != DOCS / "reference" / "config.md":  # written by `make docs`
        assert [line for line in prose(page) if len(line) > 100] == []
