"""Model cards and downloads: rendered, whole, and nothing from outside a version's folder."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from pages.downloads import archived_files, tar_stream
from pipeline_store import uris
from pipeline_store.formats import FileDigest, ModelVersion
from pipeline_store.layout import VersionLayout
from tests.model_registry.runs import FinishedRun
from tests.plugins.page_site import Site, finished, publish


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    return Site.over(tmp_path, monkeypatch)


@pytest.fixture
def made(site: Site) -> FinishedRun:
    made = finished(site, "1")
    publish(made)
    return made


def model_of(made: FinishedRun) -> ModelVersion:
    return ModelVersion.load(made.lineage.model(made.version_id))


def unpacked(data: bytes) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {one.name: archive.extractfile(one).read() for one in archive}  # type: ignore[union-attr]


def test_the_card_is_a_page_with_a_way_back(site: Site, made: FinishedRun) -> None:
    page = site.get("/card", lineage="default", version=made.version_id)
    assert f"<h1>BERT {made.version_id}" in page
    assert '<a href="models?lineage=default">' in page
    assert "<table>" in page


def test_html_in_a_card_is_text(site: Site, made: FinishedRun) -> None:
    card = b"<script>x</script> [a](javascript:x)"
    uris.write(VersionLayout(made.lineage.version(made.version_id)).card, card)
    page = site.get("/card", lineage="default", version=made.version_id)
    assert "&lt;script&gt;x" in page
    assert 'href="javascript' not in page


def test_a_version_is_downloaded_whole_and_its_size_said_before(
    site: Site, made: FinishedRun
) -> None:
    query = {"lineage": "default", "version": made.version_id}
    answer = site.client.get("/download", params=query)
    assert answer.status_code == 200
    assert answer.headers["Content-Disposition"] == f'attachment; filename="{made.version_id}.tar"'
    files = unpacked(answer.content)
    model = model_of(made)
    wanted = {f"{made.version_id}/{file.path}": file for file in model.files}
    assert files.keys() == wanted.keys() | {f"{made.version_id}/model.json"}
    for path, file in wanted.items():
        assert FileDigest.of(file.path, files[path]) == file
    page = site.get("/card", **query)
    for name in ("everything", "hugging_face", "saved_model"):
        assert f">{name}</a>" in page
    one = unpacked(site.client.get("/download", params=query | {"folder": "hugging_face"}).content)
    assert one.keys() == {
        f"{made.version_id}/model.json",
        f"{made.version_id}/hugging_face/below/weights",
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("lineage", "../runs"),
        ("version", "../../../runs"),
        ("version", "v-000000000000"),
        ("folder", "../.."),
        ("folder", "/etc"),
        ("folder", "hugging_face/../.."),
        ("folder", "hugging"),
    ],
)
def test_nothing_outside_a_versions_folder_is_downloaded(
    site: Site, made: FinishedRun, name: str, value: str
) -> None:
    query = {"lineage": "default", "version": made.version_id} | {name: value}
    assert site.status("/download", **query) == 404


@pytest.mark.parametrize("path", ["../x", "/etc/passwd", "a/../../x"])
def test_a_record_that_names_files_elsewhere_is_refused(made: FinishedRun, path: str) -> None:
    file = FileDigest(path=path, bytes=1, sha256="0" * 64)
    model = model_of(made).model_copy(update={"files": [file]})
    with pytest.raises(ValueError, match="outside its folder"):
        archived_files(model)


def test_a_file_that_was_cut_breaks_the_download_off(made: FinishedRun) -> None:
    model = model_of(made)
    files = archived_files(model)
    uris.write(uris.join(made.lineage.version(made.version_id), files[0].path), b"x")
    with pytest.raises(OSError, match="has 1 bytes"):
        list(tar_stream(made.lineage, model, files))
