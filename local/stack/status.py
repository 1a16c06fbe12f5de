"""The status of the stack, for people and for programs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PartStatus:
    """The status of one part of the stack."""

    name: str
    state: str
    """State of the process in supervisord, such as RUNNING."""
    problem: str | None
    """What is wrong, or None if the part is healthy."""
    pid: int | None
    port: int | None
    uptime_seconds: int
    restarts: int
    log: str


@dataclass(frozen=True)
class StackStatus:
    """The status of all parts, with their addresses and files."""

    running: bool
    """Whether the supervisor answers."""
    parts: tuple[PartStatus, ...]
    url: str
    tensorboard_url: str
    observers: dict[str, str]
    """Addresses of the metrics exporter, Prometheus and Alertmanager, as far as they run."""
    user: str
    state_dir: str

    @property
    def healthy(self) -> bool:
        """Whether every part is healthy."""
        return self.running and all(part.problem is None for part in self.parts)

    def table(self) -> str:
        """Return the parts as lines of text."""
        if not self.running:
            return f"The stack of {self.state_dir} is not running."
        lines = [_row("PART", "STATE", "PID", "PORT", "UPTIME", "RESTARTS", "")]
        lines += [
            _row(
                part.name,
                "ready" if part.problem is None else part.state.lower(),
                str(part.pid or "-"),
                str(part.port or "-"),
                f"{part.uptime_seconds} s" if part.pid else "-",
                str(part.restarts),
                part.problem or "",
            )
            for part in self.parts
        ]
        return "\n".join(lines)


def _row(name: str, *columns: str) -> str:
    widths = (9, 8, 6, 9, 9, 0)
    cells = [f"{text:<{width}}" for text, width in zip(columns, widths, strict=True)]
    return " ".join([f"{name:<14}", *cells]).rstrip()
