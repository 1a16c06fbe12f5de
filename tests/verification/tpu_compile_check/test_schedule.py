"""Cycles are summed as often as the program runs them, and fusions count once."""

from __future__ import annotations

import pytest

from verification.tpu_compile_check.schedule import Estimate, estimate


def cycles(count: int) -> str:
    return f'backend_config={{"window_config":{{"estimated_cycles":"{count}"}}}}'


SCHEDULE = f"""HloModule step, is_scheduled=true

%fused_computation (param: f32[8]) -> f32[8] {{
  %param = f32[8]{{0}} parameter(0)
  ROOT %add = f32[8]{{0}} add(%param, %param), {cycles(7000)}
}}

%body (state: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %state = (s32[], f32[8]) parameter(0)
  %fusion.1 = f32[8]{{0}} fusion(%item), kind=kLoop, calls=%fused_computation, {cycles(100)}
  ROOT %tuple = (s32[], f32[8]) tuple(%item, %fusion.1)
}}

%condition (state: (s32[], f32[8])) -> pred[] {{
  %state.1 = (s32[], f32[8]) parameter(0)
  ROOT %less = pred[] compare(%item.1, %limit), direction=LT, {cycles(1)}
}}

%cheap (p: f32[8]) -> f32[8] {{
  ROOT %p = f32[8]{{0}} copy(%q), {cycles(5)}
}}

%dear (p: f32[8]) -> f32[8] {{
  ROOT %p.1 = f32[8]{{0}} copy(%q.1), {cycles(50)}
}}

ENTRY %main (arg: f32[8]) -> f32[8] {{
  %arg = f32[8]{{0}} parameter(0)
  %fusion = f32[8]{{0}} fusion(%arg), kind=kLoop, calls=%fused_computation, {cycles(1000)}
  %copy-start = (f32[8], f32[8], u32[]) copy-start(%fusion)
  %while = (s32[], f32[8]) while(%init), condition=%condition, body=%body, TRIPS
  %choice = f32[8]{{0}} conditional(%which, %a, %b), branch_computations={{%cheap, %dear}}
  ROOT %call = f32[8]{{0}} call(%choice), to_apply=%cheap
}}
"""


def test_loops_branches_and_calls() -> None:
    known = SCHEDULE.replace("TRIPS", 'backend_config={"known_trip_count":{"n":"10"}}')
    assert estimate(known) == Estimate(1000 + 10 * (100 + 1) + 50 + 5, unknown_loops=0)


def test_loop_without_known_number_of_turns_counts_once_and_is_told() -> None:
    assert estimate(SCHEDULE) == Estimate(1000 + 101 + 50 + 5, unknown_loops=1)


def test_text_without_estimates_is_refused() -> None:
    with pytest.raises(ValueError, match="estimated_cycles"):
        estimate(SCHEDULE.replace("estimated_cycles", "cycles"))
    with pytest.raises(ValueError, match="estimated_cycles"):
        estimate("")
