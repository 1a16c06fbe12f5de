"""The labelled task that the pictures of fine-tuning are made with, and when they are stale."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from local.demo import tiny
from local.demo.screenshots import finetuning, manifest
from local.demo.screenshots.__main__ import main
from local.demo.screenshots.repretraining import PARTITIONS
from pipeline_store.layout import StoreLayout


def test_each_sentence_is_labelled_once_and_no_label_is_rare(tmp_path: Path) -> None:
    store = StoreLayout(str(tmp_path))
    tiny.write_partition(store, PARTITIONS[-1], seed=1, dialect=1)
    finetuning.write_task(store)
    with (Path(store.task(finetuning.TASK).root) / "train.tsv").open(newline="") as file:
        rows = list(csv.DictReader(file, dialect="excel-tab"))
    assert len({row["text"] for row in rows}) == len(rows) == finetuning.EXAMPLES
    labels = Counter(row["label"] for row in rows)
    assert set(labels) == set(finetuning.LABELS)
    assert min(labels.values()) > finetuning.EXAMPLES / 10


def taken(folder: Path) -> None:
    for name in manifest.SOURCES:
        for path in manifest.files_of(folder, name):
            path.write_bytes(b"png")
    manifest.write(folder)


def test_a_picture_is_stale_when_what_it_is_drawn_from_has_changed(tmp_path: Path) -> None:
    root, images = tmp_path / "root", tmp_path / "images"
    (root / "pages").mkdir(parents=True)
    for name in ("a.html", "b.html"):
        (root / "pages" / name).write_text(name)
    before = manifest.digest(["pages/*.html"], root)
    (root / "pages" / "b.html").write_text("another")
    changed = manifest.digest(["pages/*.html"], root)
    (root / "pages" / "b.html").rename(root / "pages" / "c.html")
    assert len({before, changed, manifest.digest(["pages/*.html"], root)}) == 3
    with pytest.raises(FileNotFoundError, match="templates"):
        manifest.digest(["templates/*"], root)
    images.mkdir()
    assert manifest.stale(images) == sorted(manifest.SOURCES)
    taken(images)
    assert manifest.stale(images) == []
    (images / "run-page-dark.png").unlink()
    assert manifest.stale(images) == ["run-page"]


def test_the_check_names_what_to_take_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken(tmp_path)
    assert main(["--check", "--output", str(tmp_path)]) == 0
    kept = tmp_path / manifest.NAME
    kept.write_text(kept.read_text().replace(manifest.digest(manifest.SOURCES["approval"]), "?"))
    assert main(["--check", "--output", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "approval" in said
    assert "make screenshots" in said
