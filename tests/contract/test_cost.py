"""The cap: computed before, and kept by a clock."""

from __future__ import annotations

import threading

import pytest

from tests.contract.cloud import Cloud, TooExpensiveError, check_cost


def test_a_suite_that_could_cost_too_much_does_not_start() -> None:
    assert check_cost("v5litepod-1", 1.2, 5.0) == pytest.approx(2.4)
    with pytest.raises(TooExpensiveError, match=r"can cost 38\.40(.|\n)*--max-cost 5\.00"):
        check_cost("v5litepod-16", 1.2, 5.0)


def test_the_clock_deletes_what_a_hanging_test_has(cloud: Cloud) -> None:
    if cloud.is_real:
        pytest.skip("it would cost a TPU and tell no more than with the emulator")
    own = Cloud(
        backend=cloud.backend,
        client=cloud.client,
        zone=cloud.zone,
        accelerator_type=cloud.accelerator_type,
        runtime_version=cloud.runtime_version,
        network={},
        admin=cloud.admin,
        patience=cloud.patience,
    )
    hangs = threading.Event()
    with own.limited(seconds=0.0):
        name = own.new_name()
        own.is_over.wait()
        with pytest.raises(TimeoutError, match="deadline has passed"):
            own.until(hangs.is_set)
        own.backend.create(own.request(name))
    # Made after the clock had run out: the end of the suite finds it by its label.
    assert not own.backend.describe(name).exists
