"""Compiles one HLO program with libtpu and writes the compiler's figures.

Runs in a separate environment (``requirements-tpu-compile.txt``: jax, jaxlib and libtpu, no
TensorFlow) and needs no TPU:

    .venv-tpu-compile/bin/python -m verification.tpu_compile_check.compiler PROGRAM.hlo.pb \\
        --topology v5e:2x2 \\
        --output FIGURES.json

Exit code 0: the output has figures, or reports that the program does not fit into memory.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from verification.tpu_compile_check.schedule import estimate

ENVIRONMENT = {
    # Nothing here runs on Google Cloud: without these, imports wait for its metadata server.
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    # Do not try to open a TPU of this machine.
    "JAX_PLATFORMS": "cpu",
    # Allow several compilers at a time, as in parallel tests; otherwise the second one aborts.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}
_OUT_OF_MEMORY = re.compile(
    r"\(([\d.]+)G\) exceeds available HBM \(([\d.]+)G\)|Used ([\d.]+)G of ([\d.]+)G hbm"
)


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    options = _parser().parse_args(argv)
    os.environ.update(ENVIRONMENT)
    # Imported only now, as it reads the environment.
    from jax.errors import JaxRuntimeError

    try:
        hlo = options.program.read_bytes()
        executable = compile_hlo(hlo, options.topology, dict(options.topology_option))
        report = figures(executable, options.schedule)
    except JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" not in str(error):
            raise
        report = out_of_memory(str(error))
    versions = {name: version(name) for name in ("jaxlib", "libtpu")}
    options.output.write_text(json.dumps(report | {"versions": versions}) + "\n")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m verification.tpu_compile_check.compiler",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", type=Path, help="serialized HloModuleProto")
    parser.add_argument("--topology", required=True, help="slice of the compiler, such as v5e:2x2")
    parser.add_argument(
        "--topology-option",
        action="append",
        default=[],
        type=lambda word: tuple(word.split("=", 1)),
        metavar="NAME=VALUE",
        help="option of the topology, such as chip_config_name=megacore",
    )
    parser.add_argument("--output", required=True, type=Path, help="JSON file to write")
    parser.add_argument("--schedule", type=Path, help="also write the scheduled HLO, for reading")
    return parser


def compile_hlo(hlo: bytes, topology: str, options: dict[str, str]) -> Any:
    """Return the executable for one device of a slice; it is compiled but never loaded.

    This uses private functions of jaxlib, so its version is pinned.
    """
    import numpy as np
    from jax._src.interpreters import mlir
    from jax._src.lib import _jax, xla_client
    from jax.experimental import topologies
    from jaxlib.mlir import ir

    found = topologies.get_topology_desc(platform="tpu", topology_name=topology, **options)
    devices = tuple(found.devices[:1])
    with mlir.make_ir_context(), ir.Location.unknown():
        module = ir.Module.parse(_jax.mlir.hlo_to_stablehlo(hlo))
        _forward_copies(module)
        compile_options = xla_client.CompileOptions()
        compile_options.num_replicas = compile_options.num_partitions = 1
        ids = np.array([[devices[0].id]])
        compile_options.device_assignment = xla_client.DeviceAssignment.create(ids)
        return devices[0].client.compile(
            module,
            executable_devices=_jax.DeviceList(devices),
            compile_options=compile_options,
        )


def _forward_copies(module: Any) -> None:
    """Replace each ``mhlo.copy``, which does not legalize, by its operand."""
    for function in module.body.operations:
        for block in function.regions[0].blocks:
            for operation in list(block.operations):
                if operation.operation.name == "mhlo.copy":
                    copied = operation.operation
                    copied.results[0].replace_all_uses_with(copied.operands[0])
                    copied.erase()


def figures(executable: Any, schedule: Path | None) -> dict[str, Any]:
    """Return the compiler's estimates of an executable, in bytes, operations and cycles.

    Memory is the program's peak: arguments, results that are not aliased to arguments, temporaries
    and code.
    """
    memory, cost = executable.get_compiled_memory_stats(), executable.cost_analysis()
    text = executable.hlo_modules()[0].to_string()
    if schedule is not None:
        schedule.write_text(text)
    cycles = estimate(text)
    return {
        "fits": True,
        "hbm_bytes": memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
        + memory.generated_code_size_in_bytes,
        "argument_bytes": memory.argument_size_in_bytes,
        "flops": cost["flops"],
        "bytes_accessed": cost["bytes accessed"],
        "estimated_cycles": cycles.cycles,
        "unknown_loops": cycles.unknown_loops,
    }


def out_of_memory(message: str) -> dict[str, Any]:
    """Return the compiler's report on a program that does not fit; sizes in GiB."""
    found = _OUT_OF_MEMORY.search(message)
    needed, available = [float(size) for size in found.groups() if size] if found else [None, None]
    return {
        "fits": False,
        "needed_gib": needed,
        "available_gib": available,
        "message": message.splitlines()[0],
    }


if __name__ == "__main__":
    sys.exit(main())
