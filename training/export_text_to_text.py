"""Write a fine-tuned T5 model for other programs: for transformers, or as text in, text out.

``python -m training.export_text_to_text --run URI --format hugging_face|saved_model --to URI``
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
from pathlib import Path

from pipeline_store import uris
from trained_models.errors import UserError
from training.exporting.writing import HUGGING_FACE, SAVED_MODEL
from training.runtime.job import nothing_to_save, on_sigterm, run_job
from training.text_to_text.setup import RunFolder
from training.text_to_text.trained import Trained

log = logging.getLogger("training")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return the process exit code."""
    arguments = _parser().parse_args(argv)
    with on_sigterm(nothing_to_save("starts the export again")):
        return run_job(lambda: _export(arguments))


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
        choices=(HUGGING_FACE, SAVED_MODEL),
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
        # Here, so that a wrong argument is reported at once and not after seconds of imports.
        from training.text_to_text.exporter import TextExporter

        folder = Path(scratch, "model")
        texts = uris.list_files(trained.folder.predictions)
        exporter = TextExporter(trained, arguments.beams, arguments.length_penalty, texts)
        exporter.write(arguments.format, folder)
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            target = uris.join(arguments.to, path.relative_to(folder).as_posix())
            uris.upload(str(path), target)
    log.info("Wrote %s, which is the model %s.", arguments.to, trained.files.sha256)


if __name__ == "__main__":
    sys.exit(main())
