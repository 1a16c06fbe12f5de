"""A chip's full memory is recognized in whatever words TPU software has for it."""

from __future__ import annotations

import pytest

from pipeline_store.formats import ExitKind
from tests.tpu_agent.world import World
from tpu_agent.diagnosis import HbmShortage, find_shortage

COMPILER = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
    "Used 17.21G of 15.75G hbm. Exceeded hbm capacity by 1.46G."
)


@pytest.mark.parametrize(
    ("text", "shortage"),
    [
        (COMPILER, HbmShortage("17.21G", "15.75G")),
        (
            (
                "Compilation failure: Ran out of memory in memory space hbm. Used 8.38G of 8.00G "
                "hbm. Exceeded hbm capacity by 385.25M."
            ),
            HbmShortage("8.38G", "8.00G"),
        ),
        ("Ran out of memory in memory space hbm. Please file a bug.", HbmShortage()),
        (
            (
                "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO "
                "temporaries (49.59G) exceeds available HBM (15.75G)."
            ),
            HbmShortage("49.59G", "15.75G"),
        ),
        (
            (
                "Attempting to reserve 10.51G at the bottom of memory. That was not possible. "
                "There are 8.97G free, 0B reserved, and 8.97G reservable."
            ),
            HbmShortage("10.51G", "8.97G"),
        ),
        (
            (
                "Error allocating device buffer: Attempting to allocate 385.25M. That was not "
                "possible. There are 92.00M free.; (0x0x0_HBM0)"
            ),
            HbmShortage("385.25M", "92.00M"),
        ),
        (
            (
                "Error loading program 'x': Attempting to reserve 6.14G at the bottom of memory. "
                "That was not possible."
            ),
            HbmShortage("6.14G"),
        ),
        (f"{COMPILER}\nlater\nRan out of memory in memory space hbm.\n", HbmShortage()),
        ("OSError: [Errno 28] No space left on device", None),
        ("MemoryError: Unable to allocate 10.0 GiB", None),
        ("", None),
    ],
)
def test_messages(text: str, shortage: HbmShortage | None) -> None:
    assert find_shortage(f"step 3\n{text}\nTraceback") == shortage


def test_the_advice_names_the_sizes_that_are_known() -> None:
    assert "(HBM) was too small: 17G needed, 15G available." in HbmShortage("17G", "15G").advice
    assert "(HBM) was too small: 17G needed. Halve" in HbmShortage("17G").advice
    assert "(HBM) was too small. Halve training.global_batch_size" in HbmShortage().advice


@pytest.mark.parametrize("code", ["1", "45", "42", "-6"])
def test_a_job_whose_log_says_so_ran_out_of_memory(world: World, code: str) -> None:
    world.add_job("010-train", "hbm", code, COMPILER, max_restarts=3)
    world.start_agent()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.exit_code) == (ExitKind.OUT_OF_MEMORY, int(code))
    assert status.restarts == 0
    assert "17.21G needed, 15.75G available" in status.message
    assert "training.gradient_accumulation_steps" in status.message


def test_what_the_job_says_of_itself_counts_more(world: World) -> None:
    world.add_job("010-train", "hbm", "41", COMPILER)
    world.start_agent()
    assert world.wait_status("010-train").exit_kind is ExitKind.BAD_DATA


def test_an_earlier_start_s_words_are_not_this_one_s(world: World) -> None:
    world.add_job("010-train", "hbm_once", COMPILER, max_restarts=1)
    world.start_agent()
    status = world.wait_status("010-train")
    assert (status.exit_kind, status.restarts) == (ExitKind.FAILED, 1)
    assert "HBM) was" not in status.message
