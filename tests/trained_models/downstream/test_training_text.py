"""Test examples in the training text: what is known of them, and what may then be said."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest

from pipeline_store import uris
from pipeline_store.formats import (
    EncoderSource,
    ModelComparison,
    ModelVersion,
    PaidVerdict,
    RunPlan,
    RunRecord,
    TaskOverlap,
    TaskSplit,
)
from pipeline_store.layout import StoreLayout
from tests.trained_models.downstream.written import guesses, task_manifest, write_trial
from trained_models.downstream import training_text
from trained_models.downstream.comparison import compare
from trained_models.downstream.training_text import InTrainingText
from trained_models.downstream.trials import FinishedTrial

NOW = datetime(2026, 1, 31, tzinfo=UTC)
MANIFEST = task_manifest()
LABELS = np.arange(400) % 3
SEARCHED = ["day-1"]
NOTHING = EncoderSource(uri=None, version_id=None)


class Store:
    """A store with versions, the manifests of partitions, and what was noted of a task."""

    def __init__(self, folder: Path) -> None:
        self.layout = StoreLayout(str(folder))
        self.lineage = self.layout.lineage("default")
        self.task = self.layout.task("things")

    def version(self, name: str, *partitions: str) -> EncoderSource:
        """Write a version that has seen partitions."""
        ModelVersion(
            version_id=name,
            lineage_id="default",
            parent=None,
            run_key="k",
            partitions_seen=list(partitions),
            files=[],
            checkpoint_prefix="c",
            vocabulary_sha256="0" * 64,
            train_steps_total=1,
            metrics={},
            created=NOW,
        ).write(self.lineage.model(name))
        return EncoderSource(uri=self.lineage.version(name), version_id=name)

    def run(self, parent: str, partition: str) -> EncoderSource:
        """Write a run that trained on a partition, from a version."""
        run = self.layout.run("0123456789ab")
        RunRecord(
            run_key="0123456789ab",
            dag_id="d",
            run_id="r",
            partition=partition,
            lineage_id="default",
            config_sha256="c",
            created=NOW,
        ).write(run.record)
        RunPlan(
            partition=partition,
            parent_version=parent,
            trained={partition: "m"},
            replayed={},
            not_replayed={},
            evaluated={},
            lease_sequence=1,
            created=NOW,
        ).write(run.plan)
        return EncoderSource(uri=run.training.root, version_id=None)

    def prepared(self, partition: str, manifest_id: str = "m1") -> None:
        """Let a partition have a manifest, which nobody reads."""
        uris.write(self.lineage.manifest(partition, manifest_id), b"{}")

    def noted(
        self,
        partition: str,
        exact: list[int] | None = None,
        near: list[int] | None = None,
        manifest_id: str = "m1",
    ) -> None:
        """Note what was found in a manifest."""
        self.prepared(partition, manifest_id)
        TaskOverlap(
            task="things",
            lineage_id="default",
            partition=partition,
            manifest_id=manifest_id,
            examples=400,
            exact=exact,
            near=near,
            near_threshold=0.8,
        ).write(self.task.overlap("k1", "default", partition, manifest_id))

    def find(self, model: EncoderSource, reference: EncoderSource = NOTHING) -> InTrainingText:
        """Return what is known of two models."""
        return training_text.find(self.layout, self.task.manifest("k1"), model, reference)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def test_only_what_the_models_have_seen_counts(store: Store) -> None:
    store.noted("day-1", [1, 2], [3])
    store.noted("day-2", [3], [4])
    store.noted("day-3", [5], [6])
    one, two = store.version("v-1", "day-1"), store.version("v-2", "day-1", "day-2")
    assert store.find(two, one) == InTrainingText(["day-1", "day-2"], {1, 2, 3}, {4})
    assert store.find(one) == InTrainingText(["day-1"], {1, 2}, {3})
    # The reference may have seen more.
    assert store.find(one, two).exact == {1, 2, 3}


def test_a_candidate_has_seen_its_own_partition_and_its_parents(store: Store) -> None:
    store.noted("day-1", [1], [])
    store.noted("day-2", [2], [])
    store.version("v-1", "day-1")
    assert store.find(store.run("v-1", "day-2")) == InTrainingText(["day-1", "day-2"], {1, 2})


def test_all_manifests_of_a_partition_count(store: Store) -> None:
    store.noted("day-1", [1], [], "m1")
    store.noted("day-1", [2], [], "m2")
    assert store.find(store.version("v-1", "day-1")).exact == {1, 2}
    store.prepared("day-1", "m3")
    assert store.find(store.version("v-1", "day-1")).unknown == ["day-1"]


def test_what_was_not_looked_up_or_has_no_signatures_is_not_known(store: Store) -> None:
    store.noted("kept", None, None)
    store.noted("equal", [7], None)
    store.prepared("later")
    found = store.find(store.version("v-1", "kept", "equal", "later", "gone"))
    assert found.unknown == ["kept", "later", "gone"]
    assert (found.near_unknown, found.exact) == (["equal"], {7})


def test_of_weights_that_no_record_is_of_nothing_is_known(store: Store) -> None:
    weights = EncoderSource(uri=uris.join(store.layout.root, "elsewhere"), version_id=None)
    assert store.find(weights).partitions is None
    assert store.find(store.version("v-1"), weights).partitions == []


def side(folder: Path, model: str, right: dict[bool, float], copies: int) -> list[FinishedTrial]:
    """Return trials that are right for a share of the first examples, and of the others."""
    trials = []
    for seed in (1, 2, 3):
        parts = [
            guesses(LABELS[:copies], right[True], 10 * seed + len(model)),
            guesses(LABELS[copies:], right[False], 100 * seed + len(model)),
        ]
        outputs = np.concatenate([outputs for _, outputs in parts])
        splits = {TaskSplit.TEST: (LABELS, outputs)}
        trials.append(write_trial(str(folder), MANIFEST, splits, model=model, seed=seed))
    return trials


def compared(
    folder: Path, copied: float, clean: float, copies: int, known: InTrainingText | None
) -> ModelComparison:
    """Compare models; the new one is right so often on copies and on others, the old one 0.6."""
    return compare(
        MANIFEST,
        side(folder, "model", {True: copied, False: clean}, copies),
        side(folder, "previous", {True: 0.6, False: 0.6}, copies),
        in_training_text=known,
    )


def found_in(copies: int) -> InTrainingText:
    return InTrainingText(SEARCHED, set(range(copies - 10)), set(range(copies - 10, copies)))


def test_what_helps_only_on_copies_has_not_helped(tmp_path: Path) -> None:
    found = compared(tmp_path, 1.0, 0.6, 200, found_in(200))
    findings = found.training_text
    assert findings is not None
    assert findings.verdict is PaidVerdict.HELPED
    assert findings.clean is not None
    assert findings.clean.verdict is PaidVerdict.NO_EVIDENCE
    assert found.verdict is PaidVerdict.NO_EVIDENCE
    counts = (
        "200 of the 400 test examples were found in the training text (190 as they are, 10 as near "
        "copies) as whole documents; parts of longer documents are not looked for. "
        f"On the other 200 the difference is {findings.clean.difference:+.4f}, from"
    )
    assert counts in found.sentence
    assert found.sentence.endswith(
        "No evidence that it helped beyond the examples in the training text."
    )
    # Nobody looked, as in reports of before.
    assert compared(tmp_path, 1.0, 0.6, 200, None).verdict is PaidVerdict.HELPED


def test_what_helps_on_the_others_too_has_helped(tmp_path: Path) -> None:
    found = compared(tmp_path, 1.0, 0.9, 100, found_in(100))
    assert found.verdict is PaidVerdict.HELPED
    assert found.sentence.endswith("It helped.")
    alone = compared(tmp_path, 1.0, 0.9, 100, None)
    numbers = ("difference", "low", "high", "model_mean", "reference_mean", "examples")
    assert [getattr(found, name) for name in numbers] == [getattr(alone, name) for name in numbers]


def test_too_few_others_are_no_evidence(tmp_path: Path) -> None:
    found = compared(tmp_path, 1.0, 1.0, 381, found_in(381))
    assert found.training_text is not None
    assert found.training_text.clean is None
    assert found.verdict is PaidVerdict.NO_EVIDENCE
    assert "The other 19 are too few to judge by. No evidence that it helped" in found.sentence
    assert compared(tmp_path, 1.0, 1.0, 400, found_in(400)).verdict is PaidVerdict.NO_EVIDENCE


def test_copies_do_not_hide_a_harm(tmp_path: Path) -> None:
    found = compared(tmp_path, 1.0, 0.3, 200, found_in(200))
    assert found.training_text is not None
    assert found.training_text.verdict is not PaidVerdict.HURT
    assert found.verdict is PaidVerdict.HURT
    assert found.sentence.endswith("It hurt on the examples that are not in the training text.")
    worse = compared(tmp_path, 0.2, 0.6, 200, found_in(200))
    assert (worse.verdict, worse.sentence[-8:]) == (PaidVerdict.HURT, "It hurt.")


def test_a_clean_task_is_judged_as_before(tmp_path: Path) -> None:
    found = compared(tmp_path, 0.9, 0.9, 100, InTrainingText(SEARCHED))
    alone = compared(tmp_path, 0.9, 0.9, 100, None)
    none = (
        " None of the 400 test examples is a whole document of the training text, or similar to "
        "one; whether any is part of a longer document is not looked for."
    )
    assert found.sentence.replace(none, "") == alone.sentence
    same = {"training_text": None, "sentence": alone.sentence}
    assert found.model_copy(update=same) == alone
    # A comparison for which nobody looked is stored as it always was.
    assert "training_text" not in alone.model_dump()


@pytest.mark.parametrize(
    ("known", "said"),
    [
        (InTrainingText(None), "not known: it is not recorded what the model was trained on."),
        (
            InTrainingText(SEARCHED, unknown=SEARCHED),
            "Whether test examples lie in partition day-1 is not known: no signatures",
        ),
        (
            InTrainingText(["a", "b"], unknown=["b"]),
            "is not looked for. Whether test examples lie in partition b is not known",
        ),
        (InTrainingText(SEARCHED, near_unknown=SEARCHED), "Near copies in partition day-1 are not"),
        (
            InTrainingText([*"abcdefgh"], unknown=[*"abcdefg"]),
            "lie in partitions a, b, c, d, e and 2 more is not known",
        ),
    ],
)
def test_what_is_not_known_is_said_and_decides_nothing(
    tmp_path: Path, known: InTrainingText, said: str
) -> None:
    found = compared(tmp_path, 0.9, 0.9, 100, known)
    assert said in found.sentence
    assert found.verdict is PaidVerdict.HELPED


def test_of_a_model_that_has_seen_no_text_nothing_is_said(tmp_path: Path) -> None:
    found = compared(tmp_path, 0.9, 0.9, 100, InTrainingText([]))
    assert "training text" not in found.sentence
