"""Imports, shows, verifies, checks and rolls back model versions; shows and breaks leases.

``python -m model_registry list --store ~/repretraining --lineage default``
"""

from __future__ import annotations

import argparse
import dataclasses
import getpass
import json
import sys
from collections.abc import Callable, Sequence
from typing import Any

from model_registry import children, consistency, import_command, lease, prune, registry
from pipeline_config.settings import add_store_argument
from pipeline_store import identity, uris
from pipeline_store.formats import FormatError, ModelVersion, ProductionPointer, Verdict
from pipeline_store.layout import LineageLayout, StoreLayout, VersionLayout


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the process exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if words[:1] == ["prune"]:
        return prune.main(words[1:])
    if words[:1] == ["import"]:
        return import_command.main(words[1:])
    options = _parser().parse_args(words)
    command: Callable[[LineageLayout, argparse.Namespace], Any] = options.action
    try:
        lineage = StoreLayout(options.store).lineage(identity.check_lineage(options.lineage))
        command(lineage, options)
    except (registry.RegistryError, FormatError, ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m model_registry", description=__doc__)
    common = argparse.ArgumentParser(add_help=False)
    add_store_argument(common)
    common.add_argument("--lineage", default="default", help="line of models (default: default)")
    common.add_argument("--json", action="store_true", help="print JSON")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(
        name: str, action: Callable[[LineageLayout, argparse.Namespace], None], text: str
    ) -> argparse.ArgumentParser:
        command = commands.add_parser(name, parents=[common], help=text, description=text)
        command.set_defaults(action=action)
        return command

    add("list", _list, "List the versions of a lineage; a star marks the one in use.")
    show = add("show", _show, "Print a version's model card.")
    show.add_argument("version", nargs="?", help="default: the version in use")
    verify = add("verify", _verify, "Read every file of versions and compare the checksums.")
    verify.add_argument("version", nargs="*", help="default: every version of the lineage")
    check = add("check", _check, "Prove that versions, ancestry, partitions and pointer fit.")
    check.add_argument("--quick", action="store_true", help="compare sizes instead of checksums")
    held = add("lease", _lease, "Show which run may continue the lineage, and who waits.")
    held.add_argument(
        "--break", dest="breaks", action="store_true", help="take the lease away from its holder"
    )
    held.add_argument("--reason", help="needed to break it; kept with the lease")
    smaller = add("children", _children, "List smaller models of classifiers, and which to serve.")
    smaller.add_argument(
        "--current", action="store_true", help="only those of the version that is in use"
    )
    # They have their own options; see main().
    commands.add_parser("import", help="begin a lineage with a published model")
    commands.add_parser("prune", help="show or remove what of the store is old and not needed")
    rollback = add("rollback", _rollback, "Put a published version into use, older or newer.")
    rollback.add_argument("version")
    rollback.add_argument("--reason", default="rolled back by hand", help="kept with the pointer")
    return parser


def _others(options: argparse.Namespace) -> str:
    """Return a sentence that names the other lineages; empty if there are none."""
    known = registry.lineage_ids(StoreLayout(options.store))
    others = [name for name in known if name != options.lineage]
    return f" There are: {', '.join(others)}; name one with --lineage." if others else ""


def _list(lineage: LineageLayout, options: argparse.Namespace) -> None:
    versions = registry.list_versions(lineage)
    pointer = ProductionPointer.load_or_none(lineage.production)
    if options.json:
        _print_json(
            {
                "lineage": options.lineage,
                "production": pointer.model_dump(mode="json") if pointer else None,
                "versions": [model.model_dump(mode="json") for model in versions],
            }
        )
        return
    if not versions:
        _print(f"Lineage {options.lineage} has no versions in {options.store}.{_others(options)}")
        return
    rows = [("", "version", "created", "steps", "loss", "partitions", "started from")]
    for model in versions:
        in_use = pointer is not None and pointer.version_id == model.version_id
        rolled_back = pointer is not None and model.version_id in pointer.rolled_back
        verdict = Verdict.load(VersionLayout(lineage.version(model.version_id)).verdict)
        rows.append(
            (
                "*" if in_use else "x" if rolled_back else "",
                model.version_id,
                f"{model.created:%Y-%m-%d %H:%M}",
                str(model.train_steps_total),
                f"{verdict.candidate_loss:.4f}",
                _partitions(model),
                model.parent or "",
            )
        )
    _print_table(rows)
    _print("* in use, x rolled back")


def _partitions(model: ModelVersion) -> str:
    seen = model.partitions_seen
    return seen[0] if len(seen) == 1 else f"{len(seen)}, last {seen[-1]}"


def _show(lineage: LineageLayout, options: argparse.Namespace) -> None:
    model = (
        registry.load_version(lineage, options.version)
        if options.version
        else registry.production(lineage)
    )
    if model is None:
        raise registry.RegistryError(
            f"Lineage {options.lineage} has no model in use in {options.store}; the first "
            "promotion sets it."
        )
    if options.json:
        _print_json(model.model_dump(mode="json"))
    else:
        _print(uris.read(VersionLayout(lineage.version(model.version_id)).card).decode())


def _verify(lineage: LineageLayout, options: argparse.Namespace) -> None:
    known = options.version or [m.version_id for m in registry.list_versions(lineage)]
    registry.production(lineage)
    damaged: dict[str, list[str]] = {}
    for version_id in known:
        try:
            model = registry.verify(lineage, version_id)
        except registry.DamagedVersionError as error:
            damaged[version_id] = error.problems
            continue
        if not options.json:
            size = sum(file.bytes for file in model.files)
            _print(f"{version_id}: {len(model.files)} files, {size} bytes, all as published")
    if options.json:
        _print_json({"verified": [v for v in known if v not in damaged], "damaged": damaged})
    if damaged:
        lines = [f"{version}: {line}" for version, found in damaged.items() for line in found]
        raise registry.RegistryError("\n".join(lines))


def _check(lineage: LineageLayout, options: argparse.Namespace) -> None:
    report = consistency.check(lineage, quick=options.quick)
    if options.json:
        consistent = {"registry_consistent": not report.problems}
        _print_json(consistent | dataclasses.asdict(report))
    else:
        in_use = f"in use: {report.in_use or 'none'}"
        _print(f"{report.versions} versions, {in_use}, {len(report.problems)} problems")
        _print(f"  lease: {report.lease}")
        for partition, count in report.times_trained.items():
            _print(f"  {partition}: trained on {'once' if count == 1 else f'{count} times'}")
    if report.problems:
        raise registry.RegistryError("\n".join(report.problems))


def _lease(lineage: LineageLayout, options: argparse.Namespace) -> None:
    broken = None
    if options.breaks:
        if not options.reason:
            raise registry.RegistryError("--break needs --reason TEXT: it is kept with the lease.")
        broken = lease.break_lease(lineage, options.reason)
    found, tickets = lease.read(lineage), lease.waiting(lineage)
    if options.json:
        _print_json(
            {
                "lease": found.model_dump(mode="json") if found else None,
                "broken": broken.model_dump(mode="json") if broken else None,
                "waiting": [ticket.model_dump(mode="json") for ticket in tickets],
            }
        )
        return
    if broken is not None:
        _print(f"Broken: {lease.describe(broken)}")
    _print(f"Lineage {options.lineage}: {lease.describe(found)}")
    for ticket in tickets:
        since = f"{ticket.since:%Y-%m-%d %H:%M}"
        _print(f"  waits since {since}: partition {ticket.partition}, run {ticket.run_id}")


def _rollback(lineage: LineageLayout, options: argparse.Namespace) -> None:
    pointer = registry.rollback(
        lineage, options.version, reason=options.reason, by=getpass.getuser()
    )
    if options.json:
        _print_json(pointer.model_dump(mode="json"))
    else:
        _print(f"In use: {pointer.version_id} (change {pointer.sequence}: {pointer.reason})")


def _children(lineage: LineageLayout, options: argparse.Namespace) -> None:
    found = children.children_of(StoreLayout(options.store), options.lineage)
    shown = [child for child in found if child.is_current or not options.current]
    if options.json:
        for child in shown:
            _print(json.dumps(children.summary(child)))
        return
    rows = [("", "task", "child", "version", "MB", "ms", "folder")]
    rows += [
        (
            "*" if child.is_current else "",
            child.model.task,
            child.model.name,
            child.model.parent.version_id or "",
            f"{child.model.figures.megabytes:.2f}",
            f"{child.model.figures.p50_ms:.2f}",
            child.folder,
        )
        for child in shown
    ]
    _print_table(rows)
    _print("* current: of the version in use, the newest of its name")


def _print_table(rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        _print("  ".join(map(str.ljust, row, widths)).rstrip())


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _print_json(content: dict[str, Any]) -> None:
    _print(json.dumps(content, indent=2))


if __name__ == "__main__":
    sys.exit(main())
