"""Write a fine-tuned T5 model for other programs: for transformers, or as text in, text out.

``python -m training.export_text_to_text --run URI --format hugging_face|saved_model --to URI``
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import numpy as np

from corpus.text.cleaning import normalize
from pipeline_store import uris
from trained_models.errors import BadDataError, PreemptedError, UserError
from trained_models.text_to_text.sizes import describe
from trained_models.text_to_text.weights import read_weights
from training.runtime.job import on_sigterm, run_job
from training.text_to_text.rows import Tokenizer
from training.text_to_text.setup import RunFolder
from training.text_to_text.trained import Trained

log = logging.getLogger("training")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = _parser().parse_args(argv)
    with on_sigterm(_stop):
        return run_job(lambda: _export(arguments))


def _stop() -> NoReturn:
    raise PreemptedError("nothing to save; the same command starts the export again.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m training.export_text_to_text",
        description="Writes a T5 model that training.finetune_text_to_text has trained. It is "
        "read again and compared before its folder appears.",
        epilog="exit codes: 0 done, 40 configuration or argument, 41 a file is damaged or what was "
        "written is not the model, 42 out of memory, 43 stopped by SIGTERM, 45 any other failure",
    )
    parser.add_argument("--run", required=True, metavar="URI", help="folder of the fine-tuning")
    parser.add_argument(
        "--format",
        required=True,
        choices=_WRITERS,
        help="hugging_face: a T5ForConditionalGeneration folder. saved_model: text in, text out, "
        "greedy and by beam search",
    )
    parser.add_argument(
        "--beams",
        type=_beams,
        default=4,
        metavar="N",
        help="of the SavedModel's signature beam_search, 2 to 32; default 4",
    )
    parser.add_argument(
        "--length-penalty",
        type=float,
        default=1.0,
        metavar="X",
        help="of the same: a text's log-probability is divided by its tokens to this power",
    )
    parser.add_argument("--to", required=True, metavar="URI", help="folder that is not there yet")
    return parser


def _beams(text: str) -> int:
    if not (text.isdecimal() and 2 <= int(text) <= 32):
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 2 to 32")
    return int(text)


def _export(arguments: argparse.Namespace) -> None:
    if uris.list_files(arguments.to):
        raise UserError(f"--to: {arguments.to} is there already; name another folder.")
    trained = Trained.load(RunFolder(arguments.run))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch, "model")
        folder.mkdir()
        _WRITERS[arguments.format](trained, folder, arguments)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            target = uris.join(arguments.to, path.relative_to(folder).as_posix())
            uris.upload(str(path), target)
    log.info("Wrote %s, which is the model %s.", arguments.to, trained.files.sha256)


def _hugging_face(trained: Trained, folder: Path, arguments: argparse.Namespace) -> None:
    from training.text_to_text.folder import write_folder

    values = trained.model().values()
    source, dropout_rate = trained["init_checkpoint"], trained["dropout_rate"]
    write_folder(folder, trained.sizes, values, dropout_rate=dropout_rate, source=source)
    found = read_weights(str(folder), describe(str(folder)))
    differing = [name for name, value in values.items() if not np.array_equal(found[name], value)]
    if differing:
        raise BadDataError(f"{len(differing)} weights were not written as they are: {differing[0]}")


def _saved_model(trained: Trained, folder: Path, arguments: argparse.Namespace) -> None:
    import tensorflow as tf

    from training.text_to_text.saved_model import TEXT, StringToString, save, write_by_library

    vocabulary = trained.vocabulary()
    model = trained.model()
    module = StringToString(model, vocabulary, trained.normalization, trained.lengths)
    save(module, folder, beams=arguments.beams, length_penalty=arguments.length_penalty)
    loaded, texts = tf.saved_model.load(str(folder)), trained.samples()
    for name, beams in (("greedy", 1), ("beam_search", arguments.beams)):
        outputs = loaded.signatures[name](**{TEXT: tf.constant(texts)})[TEXT].numpy()
        wanted = write_by_library(
            model,
            Tokenizer(vocabulary, trained.sizes),
            [normalize(trained.normalization, text) for text in texts],
            trained.lengths,
            beams=beams,
            length_penalty=arguments.length_penalty,
        )
        pairs = zip(outputs, wanted, strict=True)
        differing = [number for number, (one, other) in enumerate(pairs) if one.decode() != other]
        if differing:
            raise BadDataError(
                f"{name}: of {len(texts)} texts the SavedModel writes {len(differing)} otherwise "
                f"than the model with SentencePiece's library, the first as number {differing[0]}."
            )


_WRITERS: dict[str, Callable[[Trained, Path, argparse.Namespace], None]] = {
    "hugging_face": _hugging_face,
    "saved_model": _saved_model,
}


if __name__ == "__main__":
    sys.exit(main())
