"""Checks training on little text, seen often: masks drawn once are memorized, new ones help."""

from __future__ import annotations

from pathlib import Path

from verification.benchmarks.recipe_check.finding import Finding
from verification.benchmarks.recipes.drift import PARTITIONS
from verification.benchmarks.recipes.lineages import Length, Lineages

NAME = "memorizing"
SEEDS = (1, 2, 3)
# A start that has learned its language, then some thirty passes over a tenth of a partition.
LENGTH = Length(first_steps=400, steps=200, characters=700_000)
_CHARACTERS = 70_000
_PARTITION = "little"
_SUBJECT = PARTITIONS[1]


def check(state_dir: Path) -> Finding:
    """Continue one model on little text, with each kind of masks and three seeds.

    All are scored on held-out documents about the subject of the little text. The model memorizes
    if no model with masks drawn once is better than the start; a loss is in nats per masked token.

    :param state_dir: trained models stay there, and are not trained again.
    """
    lab = Lineages(state_dir, LENGTH)
    _write_little(lab.write_corpus())
    start = lab.first()
    versions = [start]
    for dynamic in (False, True):
        # Its documents are about the subject too.
        settings = {"masking.dynamic": dynamic, "corpus.duplicates": "keep"}
        manifest = lab.prepare(_PARTITION, settings)
        versions += [
            lab.train(
                f"{_PARTITION}-{'new' if dynamic else 'same'}-masks-{seed}",
                settings | {"training.random_seed": seed},
                _PARTITION,
                parent=start,
                manifest=manifest,
            )
            for seed in SEEDS
        ]
    report = lab.evaluate(versions, [_SUBJECT])
    first, *others = [round(model.sets[0].loss, 4) for model in report.models]
    same, new = others[: len(SEEDS)], others[len(SEEDS) :]
    return Finding(
        NAME,
        before={"start": first, "losses": same},
        after={"start": first, "losses": new},
        holds=min(same) >= first and max(new) < first,
    )


def _write_little(corpus: Path) -> None:
    """Write the first documents of a partition as a separate partition."""
    folder = corpus / _PARTITION
    if folder.exists():
        return
    text = "".join(path.read_text() for path in sorted((corpus / _SUBJECT).glob("*.txt")))
    little, _, _ = text[:_CHARACTERS].rpartition("\n\n")
    folder.mkdir()
    (folder / "documents.txt").write_text(f"{little}\n")
