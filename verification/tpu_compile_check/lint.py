"""Finds what a TPU program must not contain, although TensorFlow exports and XLA compiles it.

Also reads HLO modules: their instructions, and a fingerprint of what they compute.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.compiler.xla.service import hlo_pb2

FLOAT64 = {xla_data_pb2.F64, xla_data_pb2.C128}
# How XLA writes "up to n elements"; it compiles, and every step then waits for the host.
DYNAMIC_CALLS = {"SliceToDynamic", "PadToStatic"}
HOST_TRANSFERS = {"infeed", "outfeed", "send", "recv"}


@dataclass(frozen=True)
class Finding:
    """A violation of one rule in one place of the model.

    ``place``: name scope of the TensorFlow operation, such as ``bert/bert_encoder/...``.
    """

    rule: str
    place: str
    instruction: str
    count: int

    def __str__(self) -> str:
        """Return the finding as a line for people."""
        times = f" ({self.count} times)" if self.count > 1 else ""
        return f"{self.rule}: {self.instruction} at {self.place or 'an unnamed place'}{times}"


def lint(data: bytes) -> list[Finding]:
    """Return the violations in an exported step; empty if there are none.

    :param data: serialized ``HloModuleProto``.
    """
    counts: dict[tuple[str, str, str], int] = {}
    for item in instructions(load(data)):
        for rule, is_broken in RULES.items():
            if is_broken(item):
                name = item.custom_call_target or item.opcode
                key = (rule, item.metadata.op_name, name)
                counts[key] = counts.get(key, 0) + 1
    return [Finding(*key, count=count) for key, count in counts.items()]


def _is_float64(item: hlo_pb2.HloInstructionProto) -> bool:
    return any(shape.element_type in FLOAT64 for shape in _leaves(item.shape))


def _is_dynamic(item: hlo_pb2.HloInstructionProto) -> bool:
    sizes = (size for shape in _leaves(item.shape) for size in shape.is_dynamic_dimension)
    return item.custom_call_target in DYNAMIC_CALLS or any(sizes)


def _calls_host(item: hlo_pb2.HloInstructionProto) -> bool:
    return item.opcode.removesuffix("-done") in HOST_TRANSFERS or item.is_host_transfer


def _is_foreign(item: hlo_pb2.HloInstructionProto) -> bool:
    return item.opcode == "custom-call" and item.custom_call_target not in DYNAMIC_CALLS


def _leaves(shape: xla_data_pb2.ShapeProto) -> list[xla_data_pb2.ShapeProto]:
    """Return the array shapes of a shape, which may be a tuple."""
    if not shape.tuple_shapes:
        return [shape]
    return [leaf for part in shape.tuple_shapes for leaf in _leaves(part)]


RULES: dict[str, Callable[[hlo_pb2.HloInstructionProto], bool]] = {
    "float64, which a TPU emulates slowly": _is_float64,
    "dynamic shape; a step needs sizes that are known when it is traced": _is_dynamic,
    "transfer to or from the host within the step": _calls_host,
    "custom call, code that a TPU does not have": _is_foreign,
}


def load(data: bytes) -> hlo_pb2.HloModuleProto:
    """Return the module from a serialized ``HloModuleProto``, as TensorFlow exports it."""
    return hlo_pb2.HloModuleProto.FromString(data)


def instructions(module: hlo_pb2.HloModuleProto) -> Iterator[hlo_pb2.HloInstructionProto]:
    """Yield the instructions of all computations."""
    for computation in module.computations:
        yield from computation.instructions


def fingerprint(data: bytes) -> str:
    """Return a SHA-256 that is equal for equal programs.

    Names, instruction ids and source locations do not count; operations, shapes, constants and
    their connections do.

    :param data: serialized ``HloModuleProto``.
    """
    module = load(data)
    entry = module.entry_computation_id
    ranks = {computation.id: rank for rank, computation in enumerate(module.computations)}
    digest = hashlib.sha256(str(ranks[entry]).encode())
    for computation in module.computations:
        places = {item.id: place for place, item in enumerate(computation.instructions)}
        digest.update(str(places[computation.root_id]).encode())
        for item in computation.instructions:
            operands = [places[operand] for operand in item.operand_ids]
            waits = [places[other] for other in item.control_predecessor_ids]
            calls = [ranks[called] for called in item.called_computation_ids]
            for cleared in ("name", "id", "metadata", "operand_ids", "control_predecessor_ids"):
                item.ClearField(cleared)
            item.ClearField("called_computation_ids")
            digest.update(f"{operands}{waits}{calls}".encode())
            digest.update(item.SerializeToString(deterministic=True))
    for alias in module.input_output_alias.entries:
        digest.update(alias.SerializeToString(deterministic=True))
    return digest.hexdigest()
