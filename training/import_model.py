"""Look at weights from elsewhere before training from them: what they are, what would be loaded.

``python -m training.import_model SOURCE [--vocabulary URI] [--write-preset FILE.toml]``
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path

from pipeline_config import load_preset
from pipeline_store import uris
from trained_models.errors import UserError
from trained_models.importing.plan import refuse_unfit
from trained_models.importing.vocabulary import TOKENIZER
from training.importing.inspection import Inspection, inspect
from training.runtime.job import run_job

log = logging.getLogger("training")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = _parser().parse_args(argv)
    return run_job(lambda: import_model(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.import_model",
        description="Shows what weights from elsewhere are, which settings fit them, and what "
        "would become of each tensor. Nothing is trained.",
        epilog="exit codes: 0 they can be trained from, 40 they cannot, 41 a file is damaged",
    )
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="a Hugging Face folder, or the prefix of a TensorFlow checkpoint, such as "
        "FOLDER/bert_model.ckpt; a path or gs://",
    )
    parser.add_argument(
        "--vocabulary",
        metavar="URI",
        help="vocab.txt that the model is to have, if not its own: new tokens get new rows",
    )
    parser.add_argument(
        "--write-preset",
        metavar="FILE.toml",
        help="write the settings, to be named with --preset or extended; where the source has no "
        "vocab.txt but a tokenizer.json, a vocab.txt is written beside",
    )
    parser.add_argument(
        "--extends",
        metavar="PRESET",
        default="bert_base_v5e",
        help="preset for everything that the model does not decide: recipe, TPU, budget (default: "
        "%(default)s)",
    )
    return parser


def import_model(arguments: argparse.Namespace) -> None:
    """Describe weights, and write the settings that fit them if requested.

    :raises JobError: they cannot be trained from; see :mod:`trained_models.errors`.
    """
    source = _absolute(arguments.source)
    vocabulary = arguments.vocabulary and _absolute(arguments.vocabulary)
    target = arguments.write_preset and Path(arguments.write_preset).absolute()
    if target and (target.suffix != ".toml" or target.exists()):
        raise UserError(f"--write-preset {target}: give the name of a new .toml file.")
    found = inspect(source, vocabulary)
    log.info("%s is a %s, described by %s.", source, found.kind, found.description.uri)
    for note in found.description.notes:
        log.info("%s", note)
    log.info("What becomes of each weight: %s", found.table)
    if found.strangers:
        log.info("Tensors that have no place here: %s", ", ".join(found.strangers))
    log.info("Settings that fit it, for a new model.lineage_id:\n\n%s", found.preset())
    refuse_unfit(source, found.table)
    if target:
        if vocabulary is None and found.vocabulary and _is_without_words(found):
            found = _with_vocabulary(found, target.with_suffix(".vocab.txt"))
        head = f'# From {source}\nextends = "{arguments.extends}"\n'
        target.write_text(f"{head}\n{found.preset()}")
        load_preset(str(target))
        log.info("Written to %s.", target)


def _absolute(uri: str) -> str:
    """Return an absolute URI: a configuration takes relative paths as relative to the store."""
    return uri if uris.is_absolute(uri) else str(Path(uri).absolute())


def _is_without_words(found: Inspection) -> bool:
    """Return whether there is no token file that ``vocabulary.uri`` could name."""
    assert found.vocabulary is not None  # noqa: S101 - the caller has looked
    has_own = found.settings["vocabulary.kind"] in {"bpe", "t5"}
    return found.vocabulary.uri.endswith(TOKENIZER) and not has_own


def _with_vocabulary(found: Inspection, file: Path) -> Inspection:
    """Write the tokens of a tokenizer.json as the vocab.txt that this project reads."""
    assert found.vocabulary is not None  # noqa: S101 - the caller has looked
    file.write_text("".join(f"{token}\n" for token in found.vocabulary.tokens))
    return found._replace(settings=found.settings | {"vocabulary.uri": str(file)})


if __name__ == "__main__":
    sys.exit(main())
