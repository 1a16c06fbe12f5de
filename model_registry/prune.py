"""Shows what in a store is old and no longer needed; with ``--delete`` removes it.

``python -m model_registry.prune --store ~/repretraining --older-than-days 30``

What is kept and why: ``docs/operate/retention.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator
from datetime import timedelta

from model_registry.errors import RegistryError
from model_registry.retention import pruning
from model_registry.retention.pruning import PrunePlan, PruneReport, RetentionPolicy
from pipeline_config import ConfigError, load_preset
from pipeline_config.settings import add_store_argument, load_settings
from pipeline_store.layout import StoreLayout

_PROGRESS_SECONDS = 5.0
_SHOWN = 10


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the process exit code."""
    options = parser().parse_args(arguments)
    try:
        policy = RetentionPolicy(
            keep_versions=options.keep_versions,
            older_than=timedelta(days=options.older_than_days),
            pinned=(*options.keep, *preset_pins()),
            confirmed=options.confirm,
        )
        store = StoreLayout(options.store)
        report = (
            pruning.prune(store, policy, _Progress())
            if options.delete
            else PruneReport(pruning.plan(store, policy))
        )
    except (ConfigError, RegistryError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if options.json:
        content = {"deleted": options.delete, **report.to_json()}
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines(report, deleted=options.delete))
    return 0


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line, which ``python -m model_registry prune`` shares."""
    default = RetentionPolicy()
    found = argparse.ArgumentParser(prog="python -m model_registry prune", description=__doc__)
    add_store_argument(found)
    found.add_argument(
        "--keep-versions",
        type=int,
        metavar="N",
        default=default.keep_versions,
        help="nearest ancestors of the model in use, and newest versions, that stay "
        "(default: %(default)s)",
    )
    found.add_argument(
        "--older-than-days",
        type=float,
        metavar="DAYS",
        default=default.older_than / timedelta(days=1),
        help="nothing younger is touched; at least 2 (default: %(default)g)",
    )
    found.add_argument(
        "--keep",
        metavar="URI",
        action="append",
        default=[],
        help="a model version or the training folder of a run that stays; may be repeated",
    )
    how = found.add_mutually_exclusive_group()
    how.add_argument("--dry-run", action="store_true", help="only say what would go; the default")
    how.add_argument("--delete", action="store_true", help="remove it")
    found.add_argument(
        "--confirm",
        action="store_true",
        help="remove although a clock may be wrong, or most versions would go; look at what would "
        "go first",
    )
    found.add_argument("--json", action="store_true", help="print JSON")
    return found


def preset_pins() -> list[str]:
    """Return the URI of the model that runs of the installation's preset start from, if any.

    :raises ConfigError: the preset cannot be read.
    """
    checkpoint = load_preset(load_settings().preset).model.init_checkpoint
    return [checkpoint] if checkpoint else []


def lines(report: PruneReport, *, deleted: bool) -> Iterator[str]:
    """Yield a report as text, most of it one line per kind or reason."""
    plan = report.plan
    yield from _totals(plan, deleted=deleted)
    for name, reason in report.left.items():
        yield f"left: {name}: {reason}"
    yield f"Versions kept: {len(plan.kept_versions)}"
    for version, reasons in plan.kept_versions.items():
        yield f"  {version}: {'; '.join(reasons)}"
    yield f"Runs that count as running: {len(plan.running)}"
    for key, reason in _some(plan.running):
        yield f"  {key}: {reason}"
    for kind, reasons in plan.blocked.items():
        yield f"Nothing of {kind.value} goes for now:"
        yield from (f"  {reason}" for reason in reasons[:_SHOWN])
    yield from (f"Needs --confirm: {doubt}" for doubt in plan.doubts)
    if plan.unknown:
        yield f"Unknown objects, left alone: {len(plan.unknown)}, such as"
        yield from (f"  {path}" for path in plan.unknown[:_SHOWN])


def _totals(plan: PrunePlan, *, deleted: bool) -> Iterator[str]:
    totals = plan.totals()
    if not totals:
        yield "Nothing can go."
        return
    yield "Removed:" if deleted else "Would go (nothing is removed without --delete):"
    for kind, (count, size) in totals.items():
        yield f"  {count:>7}  {size_text(size):>9}  {kind.value}"
    count, size = (sum(column) for column in zip(*totals.values(), strict=True))
    yield f"  {count:>7}  {size_text(size):>9}  in all"


def _some(found: dict[str, str]) -> list[tuple[str, str]]:
    return list(found.items())[:_SHOWN]


def size_text(size: float) -> str:
    """Return a human-readable number of bytes, such as ``1.5 GB``."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if size < 1000:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.4g} TB"


class _Progress:
    """Progress report: a line on stderr every few seconds."""

    def __init__(self) -> None:
        self._written = time.monotonic()

    def __call__(self, done: int, total: int, size: int) -> None:
        now = time.monotonic()
        if now - self._written >= _PROGRESS_SECONDS:
            self._written = now
            sys.stderr.write(f"{done} of {total} done, {size_text(size)} removed\n")


if __name__ == "__main__":
    sys.exit(main())
