"""Interruptions of a real trainer: the weights come out as if nothing had happened.

A failure names a seed; ``INTERRUPTIONS_SEED=<seed>`` repeats the same choices. The moment at which
a signal arrives is not among them.
"""

from __future__ import annotations

import os
import random
import secrets
from pathlib import Path

import pytest

from tests.training.corpora import TinyStore, tiny_config
from tests.training.interruptions import KINDS, InterruptedTraining
from tests.training.jobs import result, train
from tests.training.poison import not_a_number, poison

STEPS = 600
# Short rows first, then long ones; a quarter of each batch is replayed; dropout is on.
EVERYTHING = {
    "masking__extra_max_seq_length": 32,
    "masking__extra_max_predictions_per_seq": 6,
    "model__hidden_dropout_prob": 0.1,
    "model__attention_probs_dropout_prob": 0.1,
    "training__train_steps": STEPS,
    "training__checkpoint_interval": 20,
    "training__steps_per_loop": 5,
    "training__extra_steps_fraction": 0.25,
    "training__extra_global_batch_size": 4,
    "training__replay_fraction": 0.25,
    "training__max_rollbacks": 100,
}
TRAININGS = {
    # One record has a weight that is no number: training goes back whenever it is read.
    "adamw": {"training__keep_best": True, "evaluation__rows_per_checkpoint": 8},
    "amos": {"optimizer__type": "amos", "masking__dynamic": True},
    "lamb": {
        "optimizer__type": "lamb",
        "masking__packing": "segment_pair",
        "masking__dynamic": True,
    },
}


def interrupted_training_ends_as_a_straight_one(
    tiny: TinyStore, scratch: Path, name: str, kinds: list[str], seed: int
) -> None:
    config = tiny_config(**EVERYTHING, **TRAININGS[name], training__random_seed=seed % 1000)
    store = tiny.using(config)
    old = store.partition("2026-01-01", documents=20)
    new = store.partition("2026-01-02", documents=150)
    if name == "adamw":
        poison(store, new, 50, not_a_number, replay=[old])
    words = [new, "--replay-manifest", old]
    straight, run = store.run("straight"), store.run("interrupted")
    assert train(store, straight, *words) == 0
    assert bool(result(straight).rollbacks) == (name == "adamw")

    choice = random.Random(seed)
    training = InterruptedTraining(store, run, words, choice=choice, scratch=scratch / "progress")
    for number, kind in enumerate(kinds, start=1):
        training.interrupt(kind, before_step=STEPS * number // (len(kinds) + 2))
    assert train(store, run, *words) == 0
    own = {"seconds", "resumed_from"}
    assert result(run).model_dump(exclude=own) == result(straight).model_dump(exclude=own), (
        f"INTERRUPTIONS_SEED={seed}: {training.history}"
    )


# A signal is sent to a process of its own, which has to import TensorFlow first.
@pytest.mark.thorough
def test_interruptions_of_all_kinds_do_not_change_the_weights(
    tiny: TinyStore, tmp_path: Path
) -> None:
    interrupted_training_ends_as_a_straight_one(tiny, tmp_path, "adamw", [*KINDS], seed=1)


SEED = int(os.environ.get("INTERRUPTIONS_SEED") or secrets.randbelow(1_000_000))


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_thirty_random_interruptions_do_not_change_the_weights(
    tiny: TinyStore, tmp_path: Path, number: int
) -> None:
    choice = random.Random(SEED + number)
    name = [*TRAININGS][number % len(TRAININGS)]
    kinds = choice.choices([*KINDS], k=5)
    print(f"INTERRUPTIONS_SEED={SEED}: {name}, {kinds}")
    interrupted_training_ends_as_a_straight_one(tiny, tmp_path, name, kinds, SEED + number)
