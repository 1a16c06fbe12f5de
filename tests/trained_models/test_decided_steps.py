"""What a training is once its run's plan has decided its steps."""

from __future__ import annotations

import pytest

from pipeline_config import load_preset, with_overrides
from trained_models.decided_steps import decided_config, with_steps
from trained_models.errors import UserError
from trained_models.phases import phases, trained_shapes

SMOKE, BERT = load_preset("smoke"), load_preset("bert_base_v5e")


def test_a_number_is_left_as_it_is_with_all_that_was_chosen_for_it() -> None:
    assert decided_config(SMOKE, None) is SMOKE
    assert decided_config(SMOKE, 400) == SMOKE
    fewer = with_steps(SMOKE, 40)
    assert (fewer.optimizer, fewer.training.checkpoint_interval) == (SMOKE.optimizer, 50)


def test_auto_needs_a_number_and_a_number_no_other() -> None:
    with pytest.raises(UserError, match=r"auto, which a run's plan decides: .* --train-steps"):
        decided_config(BERT, None)
    with pytest.raises(UserError, match=r"--train-steps 300 is not training\.train_steps=400"):
        decided_config(SMOKE, 300)
    with pytest.raises(ValueError, match=r"training\.train_steps is auto"):
        phases(BERT)


def test_the_identity_of_a_decided_training_is_that_of_its_settings_as_they_act() -> None:
    decided = decided_config(BERT, 300)
    named = {
        "training.train_steps": 300,
        "optimizer.warmup_steps": 30,
        "training.checkpoint_interval": 40,
    }
    assert decided.training_sha256 == with_overrides(BERT, named).training_sha256
    assert decided.training_sha256 != decided_config(BERT, 320).training_sha256


def test_limits_of_the_steps_are_no_part_of_a_training() -> None:
    # Of the commit before there were any: trainings that began then go on.
    assert SMOKE.training_sha256.startswith("a1a09618353daf9e")
    changed = with_overrides(SMOKE, {"training.max_passes": 7, "training.max_train_steps": 9})
    assert changed.training_sha256 == SMOKE.training_sha256
    assert changed.data_sha256 == SMOKE.data_sha256


def test_lengths_of_rows_are_known_before_the_steps() -> None:
    curriculum = with_overrides(
        BERT,
        {
            "masking.extra_max_seq_length": 512,
            "masking.extra_max_predictions_per_seq": 76,
            "training.extra_steps_fraction": 0.1,
        },
    )
    assert [shape.max_seq_length for shape in trained_shapes(curriculum)] == [128, 512]
    found = phases(with_steps(curriculum, 1000))
    assert tuple(phase.shape for phase in found) == trained_shapes(curriculum)
    assert len(trained_shapes(BERT)) == 1
