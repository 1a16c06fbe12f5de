from __future__ import annotations

import pytest
from tensorflow.tsl.profiler.protobuf import xplane_pb2

from verification.benchmarks.train.profile import table
from verification.benchmarks.train.sides.tensorflow_side import operation_ms

MS = 10**9


def trace(*events: tuple[str, int, int]) -> xplane_pb2.XSpace:
    """Return a trace of one thread: names, beginnings and lengths in ms."""
    space = xplane_pb2.XSpace()
    plane = space.planes.add(name="/host:CPU")
    line = plane.lines.add()
    for number, (name, begin, duration) in enumerate(events, start=1):
        plane.event_metadata[number].name = name
        line.events.add(metadata_id=number, offset_ps=begin * MS, duration_ps=duration * MS)
    return space


def test_time_inside_of_an_operation_is_that_of_the_inner_one() -> None:
    space = trace(
        ("ExecutorState::Process", 0, 100),
        ("while/body/call:While", 0, 50),
        ("while/a/MatMul:_MklMatMul", 10, 20),
        ("while/a/Mul:Mul#trace=1#", 30, 5),
        ("b/MatMul:_MklMatMul", 60, 7),
    )
    found = operation_ms(space)
    assert found == pytest.approx({"While": 25, "_MklMatMul": 27, "Mul": 5})


def test_other_planes_do_not_count() -> None:
    space = trace(("a:MatMul", 0, 1))
    space.planes[0].name = "/host:metadata"
    assert operation_ms(space) == {}


def test_the_table_has_most_time_first_and_leaves_out_crumbs() -> None:
    lines = table({"wall clock of a step": 90.0, "Mul": 30.0, "MatMul": 69.9, "Pack": 0.1})
    assert lines.split("\n") == [
        "     90.0 ms wall clock of a step",
        "    100.0 ms in operations",
        "     69.9 ms  69.9%  MatMul",
        "     30.0 ms  30.0%  Mul",
    ]
