"""The command line, as far as it gets where no image can be built."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from verification.container_images.__main__ import Summary, main


def test_without_its_tools_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["--only", "bert-trainer", "--output", str(tmp_path / "images")]) == 1
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["images_built"] == []
    assert summary["smoke_ok"] is False
    assert summary["problems"] == ["mmdebstrap is not installed; run scripts/need-buildah."]


def test_an_unknown_image_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--only", "bert-nothing"])
    assert "choose from" in capsys.readouterr().err


def test_every_built_image_must_have_been_tried() -> None:
    summary = Summary(images_built=["a", "b"], smoke={"a": {}})
    assert not summary.smoke_ok
    summary.smoke["b"] = {}
    assert summary.smoke_ok
    assert not Summary().smoke_ok
