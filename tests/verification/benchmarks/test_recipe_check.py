"""What the check of the recipe says of losses, and what its quickest part finds."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verification.benchmarks.recipe_check import __main__ as command
from verification.benchmarks.recipe_check import memorizing

START, WORSE, BETTER = 6.3, [6.3, 7.1, 7.0], [6.2, 6.0, 6.1]


class Lab:
    """Trains nothing; its models have the losses that are given."""

    def __init__(self, root: Path, losses: list[float]) -> None:
        self.root, self.losses = root, losses
        self.trained: list[dict[str, Any]] = []

    def write_corpus(self) -> Path:
        folder = self.root / "2026-01-02"
        folder.mkdir()
        (folder / "a.txt").write_text("first document.\n\n" + "x" * 80_000 + "\n\n")
        return self.root

    def first(self) -> str:
        return "first"

    def prepare(self, partition: str, settings: dict[str, Any]) -> str:
        return f"{partition}-{settings['masking.dynamic']}"

    def train(self, name: str, overrides: dict[str, Any], partition: str, **how: Any) -> str:
        self.trained.append(overrides | how)
        return name

    def evaluate(self, versions: list[str], partitions: list[str]) -> Any:
        assert len(versions) == len(self.losses)
        sets = [SimpleNamespace(sets=[SimpleNamespace(loss=loss)]) for loss in self.losses]
        return SimpleNamespace(models=sets)


@pytest.mark.parametrize(
    ("same", "new", "holds"),
    [
        (WORSE, BETTER, True),
        # One seed that learns in spite of it, or does not learn with new masks.
        ([6.29, 7.1, 7.0], BETTER, False),
        (WORSE, [6.2, 6.3, 6.1], False),
    ],
)
def test_no_seed_may_be_an_exception(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    same: list[float],
    new: list[float],
    holds: bool,
) -> None:
    lab = Lab(tmp_path, [START, *same, *new])
    monkeypatch.setattr(memorizing, "Lineages", lambda *_: lab)
    found = memorizing.check(tmp_path)
    assert found.before == {"start": START, "losses": same}
    assert found.after == {"start": START, "losses": new}
    assert found.holds is holds
    assert (tmp_path / "little" / "documents.txt").read_text() == "first document.\n"
    # They differ in nothing but masks and seed.
    assert {str(one.pop("manifest")) for one in lab.trained} == {"little-False", "little-True"}
    for one in lab.trained:
        assert one.pop("parent") == "first"
        assert set(one) == {"masking.dynamic", "corpus.duplicates", "training.random_seed"}


def test_the_limit_on_what_is_forgotten_stops_a_ratchet(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--only", "ratchet"]) == 0
    line, summary = map(json.loads, capsys.readouterr().out.splitlines())
    assert line["before"] == {"promoted": 12, "lost": pytest.approx(1.02)}
    assert line["after"] == {"promoted": 2, "lost": pytest.approx(0.17)}
    assert line["holds"]
    assert summary["failed"] == []


def test_an_unknown_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--only", "ratchet,rachet"])
    said = capsys.readouterr().err
    assert "there is no check rachet; there are ratchet, first-gate, memorizing" in said
