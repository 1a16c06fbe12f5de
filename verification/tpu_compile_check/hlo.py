"""Reading an HLO module: its instructions, and a fingerprint of what it computes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from tensorflow.compiler.xla.service import hlo_pb2


def load(data: bytes) -> hlo_pb2.HloModuleProto:
    """Return the module of a serialized ``HloModuleProto``, as TensorFlow exports it."""
    return hlo_pb2.HloModuleProto.FromString(data)


def instructions(module: hlo_pb2.HloModuleProto) -> Iterator[hlo_pb2.HloInstructionProto]:
    """Yield the instructions of all computations."""
    for computation in module.computations:
        yield from computation.instructions


def fingerprint(data: bytes) -> str:
    """Return a SHA-256 that is equal for equal programs.

    Names, numbers given to instructions and lines of source code do not count; operations, shapes,
    constants and the way they are connected do.

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
