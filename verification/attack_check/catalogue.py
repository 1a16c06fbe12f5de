"""All rows of the check. Each group of attacks has its own file with its ``ROWS``."""

from __future__ import annotations

from verification.attack_check import (
    clock_attacks,
    corpus_attacks,
    damage_attacks,
    event_attacks,
    form_attacks,
    many_attacks,
    people_attacks,
    place_attacks,
    registry_attacks,
    secret_attacks,
    storage_attacks,
    training_attacks,
    vm_attacks,
    web_attacks,
    word_attacks,
)
from verification.attack_check.rows import Row

ROWS: tuple[Row, ...] = (
    *people_attacks.ROWS,
    *form_attacks.ROWS,
    *place_attacks.ROWS,
    *clock_attacks.ROWS,
    *registry_attacks.ROWS,
    *storage_attacks.ROWS,
    *corpus_attacks.ROWS,
    *damage_attacks.ROWS,
    *event_attacks.ROWS,
    *many_attacks.ROWS,
    *training_attacks.ROWS,
    *word_attacks.ROWS,
    *vm_attacks.ROWS,
    *secret_attacks.ROWS,
    *web_attacks.ROWS,
)
