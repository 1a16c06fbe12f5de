"""The documentation beside Airflow: what of a folder is served, and what is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from model_pages import views
from pages import documentation
from tests.plugins.page_site import Site


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    (site / "operate").mkdir(parents=True)
    (site / "index.html").write_text("<h1>Start</h1>")
    (site / "operate" / "alerts.html").write_text("<h2 id='overdue'>overdue</h2>")
    (tmp_path / "secret").write_text("secret")
    (site / "linked").symlink_to(tmp_path / "secret")
    monkeypatch.setattr(documentation, "SITE", site)
    return site


@pytest.fixture
def pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site.over(tmp_path / "store", monkeypatch)


def test_pages_are_served_below_one_address(built: Path, pages: Site) -> None:
    assert "overdue" in pages.get("/docs/operate/alerts.html")
    answer = pages.client.get("/docs", follow_redirects=False)
    assert answer.headers["location"] == "/repretraining/docs/index.html"


@pytest.mark.parametrize(
    "path", ["../secret", "%2e%2e/secret", "operate/%2e%2e/%2e%2e/secret", "linked", "operate", ""]
)
def test_nothing_else_is(built: Path, pages: Site, path: str) -> None:
    assert pages.status(f"/docs/{path}") == 404


def test_a_name_that_no_file_system_takes_is_refused(built: Path, pages: Site) -> None:
    assert pages.status("/docs/index.html%00.png") == 400


def test_a_place_without_the_site_says_how_to_build_it(
    pages: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documentation, "SITE", tmp_path / "none")
    assert "make docs" in pages.client.get("/docs/index.html").text


@pytest.mark.parametrize("is_built", [True, False])
def test_the_menu_has_it_where_it_is_there(tmp_path: Path, is_built: bool) -> None:
    site = tmp_path / "site"
    if is_built:
        site.mkdir()
    assert ("Documentation" in [view["name"] for view in views(site)]) is is_built
