"""Shows configurations and writes their documentation.

``python -m pipeline_config show --preset smoke``
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pipeline_config.docs_table import config_page
from pipeline_config.finetuning import FinetuningConfig
from pipeline_config.loading import (
    ConfigError,
    fields,
    load_finetuning_preset,
    load_preset,
    parse_overrides,
    preset_names,
    with_overrides,
)
from pipeline_config.schema import PipelineConfig

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "config.md"


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the process exit code."""
    options = _parser().parse_args(arguments)
    if options.command == "docs":
        PAGE.write_text(config_page())
        sys.stdout.write(f"Wrote {PAGE}\n")
        return 0
    try:
        config = _chosen(options)
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(config.to_bytes().decode() if options.json else _listing(config))
    return 0


def _chosen(options: argparse.Namespace) -> PipelineConfig | FinetuningConfig:
    """Return the configuration that the command line describes.

    :raises ConfigError: it breaks a rule.
    """
    if options.finetuning:
        overrides = parse_overrides(options.overrides, FinetuningConfig)
        return with_overrides(load_finetuning_preset(options.preset), overrides)
    return with_overrides(load_preset(options.preset), parse_overrides(options.overrides))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pipeline_config", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("docs", help="write docs/reference/config.md from the schema")
    show = commands.add_parser("show", help="print every setting of a preset")
    show.add_argument("--preset", required=True, help=f"one of {', '.join(preset_names())}")
    own = ", ".join(preset_names(FinetuningConfig))
    show.add_argument(
        "--finetuning", action="store_true", help=f"of a fine-tuning run; presets: {own}"
    )
    show.add_argument(
        "--set",
        dest="overrides",
        action="append",
        default=[],
        metavar="SECTION.NAME=VALUE",
        help="replace one setting; may be given several times",
    )
    show.add_argument("--json", action="store_true", help="print config.json instead of a list")
    return parser


def _listing(config: PipelineConfig | FinetuningConfig) -> str:
    """Return a line per setting; a star marks what differs from the default."""
    default = type(config)()
    lines = []
    for name, _ in fields(type(config)):
        section, key = name.split(".")
        value = getattr(getattr(config, section), key)
        changed = value != getattr(getattr(default, section), key)
        lines.append(f"{'*' if changed else ' '} {name} = {'' if value is None else value}\n")
    return "".join(lines)


if __name__ == "__main__":
    sys.exit(main())
