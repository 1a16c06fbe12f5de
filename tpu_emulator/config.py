"""Every option of the emulator, in one dataclass that also produces the command line."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any


def _option(default: Any, help_text: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": help_text, "choices": choices})


@dataclass(frozen=True)
class EmulatorConfig:
    """Options of one emulated cloud. Durations are seconds."""

    socket: Path = field(metadata={"help": "Unix socket to serve on, in a folder of mode 0700"})
    state_dir: Path = field(metadata={"help": "folder of the database and of the VMs' folders"})
    project: str = _option("local-project", "the only project that exists")
    accept_delay: float = _option(0.1, "seconds a queued resource stays CREATING")
    provision_delay: float = _option(0.2, "seconds it then waits in the queue")
    boot_delay: float = _option(0.2, "seconds a node stays CREATING or STARTING")
    delete_delay: float = _option(0.1, "seconds between a delete or stop call and its effect")
    suspend_delay: float = _option(0.2, "seconds a preempted queued resource stays SUSPENDING")
    vm_grace: float = _option(10.0, "seconds between SIGTERM and SIGKILL when a VM goes away")
    exit_grace: float = _option(3.0, "the same when the emulator itself is stopped")
    on_exit: str = _option("kill", "what SIGTERM or SIGINT does to the VMs", ("kill", "keep"))
    create_finishes_at: str = _option(
        "accepted",
        "state of the queued resource at which its create operation is done",
        ("accepted", "provisioning", "active"),
    )
    queued_state: str = _option(
        "WAITING_FOR_RESOURCES",
        "name of the waiting state (the service renamed it)",
        ("WAITING_FOR_RESOURCES", "ACCEPTED"),
    )
    delete_while_suspending: str = _option(
        "refuse", "answer to deleting a queued resource that is SUSPENDING", ("refuse", "allow")
    )
    clock_skew: float = _option(0.0, "seconds by which the clock of the service is fast")
    price: dict[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "price of a chip-hour of an accelerator type, for `admin bill`; repeatable",
            "metavar": "TYPE=PRICE",
            "repeat": True,
        },
    )
    vm_env: dict[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "sets a variable in the environment of every VM, for example a PATH to the "
            "Python that startup scripts need; repeatable",
            "metavar": "KEY=VALUE",
            "repeat": True,
        },
    )
    reservation: tuple[str, ...] = field(
        default=(),
        metadata={
            "help": "name of a reservation that exists; repeatable",
            "metavar": "NAME",
            "repeat": True,
        },
    )


_METAVARS = {"float": "SECONDS", "Path": "PATH"}
_NAMES = {option.name for option in fields(EmulatorConfig)}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds one option per field of `EmulatorConfig`, and `--config`."""
    parser.add_argument(
        "--config", type=Path, help="JSON object of options (names with underscores); flags win"
    )
    for option in fields(EmulatorConfig):
        meta = option.metadata
        help_text = meta["help"]
        if option.default is not MISSING and not meta.get("repeat"):
            help_text += f" (default: {option.default})"
        parser.add_argument(
            f"--{option.name.replace('_', '-')}",
            help=help_text,
            action="append" if meta.get("repeat") else "store",
            metavar=meta.get("metavar") or _METAVARS.get(str(option.type)),
            choices=meta.get("choices") or None,
            type=_converter(option),
            default=argparse.SUPPRESS,
        )


def from_arguments(arguments: argparse.Namespace) -> EmulatorConfig:
    """Builds the options from the file named by `--config`, overridden by the flags.

    Raises:
        ValueError: an unknown option in the file, a malformed value, or a missing one.
    """
    values = _from_file(arguments.config) if arguments.config else {}
    values |= {name: value for name, value in vars(arguments).items() if name in _NAMES}
    missing = [flag for flag in ("socket", "state_dir") if flag not in values]
    if missing:
        raise ValueError(f"required and missing: {', '.join(missing)}")
    return EmulatorConfig(
        **values
        | {"socket": values["socket"].absolute(), "state_dir": values["state_dir"].absolute()}
        | {"vm_env": _pairs("--vm-env", values.get("vm_env", []))}
        | {"price": _pairs("--price", values.get("price", []))}
        | {"reservation": tuple(values.get("reservation", ()))}
    )


def flags(values: Mapping[str, Any]) -> list[str]:
    """The command line that sets these fields of `EmulatorConfig`."""
    result = []
    for name, value in values.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(value, Mapping):
            result += [f"{flag}={key}={text}" for key, text in value.items()]
        elif isinstance(value, tuple | list):
            result += [f"{flag}={item}" for item in value]
        else:
            result.append(f"{flag}={value}")
    return result


def _from_file(path: Path) -> dict[str, Any]:
    loaded = json.loads(path.read_text())
    if not isinstance(loaded, dict) or set(loaded) - _NAMES:
        raise ValueError(
            f"{path}: expected a JSON object with keys among {sorted(_NAMES)}, "
            f"got {sorted(set(loaded) - _NAMES)}"
        )
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser)
    try:
        values = vars(parser.parse_args(flags(loaded)))
    except argparse.ArgumentError as error:
        raise ValueError(f"{path}: {error}") from None
    return {name: value for name, value in values.items() if name in _NAMES}


def _converter(option: Any) -> Callable[[str], Any]:
    return {"float": float, "Path": Path}.get(option.type, str)


def _pairs(flag: str, items: list[str]) -> dict[str, str]:
    pairs = [item.partition("=") for item in items]
    wrong = [name for name, separator, _ in pairs if not (name and separator)]
    if wrong:
        raise ValueError(f"{flag} {wrong[0]!r}: expected KEY=VALUE")
    return {name: text for name, _, text in pairs}
