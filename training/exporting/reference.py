"""What a model itself computes on the rows that its exports are tried out on, as a file.

For programs that know nothing of this project: they read an exported folder, compute the same, and
compare.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from training.exporting.checks import Subject, mask_places, outputs


def write_reference(path: Path, subject: Subject) -> None:
    """Write rows and outputs as an ``.npz`` file.

    It has ``input_word_ids``, ``input_mask``, ``input_type_ids`` int32 [R, S]; ``hidden_states``
    float32 [T, H] of all T real tokens, row by row; ``mask_places`` int32 [N, 2], row and position
    of every ``[MASK]``; and ``logits`` float32 [N, V] there, of the tokens of the vocabulary.
    """
    found = outputs(subject.model, subject.rows, subject.tokens)
    rows = {name: values for name, values in subject.rows.items() if name.startswith("input_")}
    with path.open("wb") as file:
        np.savez(
            file,
            allow_pickle=False,
            **rows,
            hidden_states=found.hidden_states,
            mask_places=mask_places(subject.rows, subject.tokens),
            logits=found.logits,
        )
