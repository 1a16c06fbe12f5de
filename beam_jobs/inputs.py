"""Which files are the input of a partition, and in which format each of them is."""

from __future__ import annotations

from typing import Literal

from beam_jobs.errors import UserError
from pipeline_config import PipelineConfig
from pipeline_store import uris
from pipeline_store.layout import StoreLayout

InputFormat = Literal["text", "sentences", "jsonl"]


def input_patterns(pattern: str, partition: str, store: StoreLayout) -> list[str]:
    """Return the absolute patterns of a partition's input files.

    :param pattern: ``corpus.input_pattern``: patterns separated by commas.
    """
    parts = [part.strip() for part in pattern.split(",") if part.strip()]
    return [store.resolve(part.replace("{partition}", partition)) for part in parts]


def list_inputs(pattern: str, partition: str, store: StoreLayout) -> list[str]:
    """Return the partition's input files, sorted, each once.

    :raises UserError: a pattern matches no file; the message names it and what lies there.
    """
    patterns = input_patterns(pattern, partition, store)
    if not patterns:
        raise UserError(f"corpus.input_pattern {pattern!r} contains no pattern.")
    found: set[str] = set()
    for part in patterns:
        try:
            matches = uris.glob(part)
        except ValueError as error:
            raise UserError(f"corpus.input_pattern: {error}") from error
        if not matches:
            raise UserError(_no_match(part))
        found.update(matches)
    return sorted(found)


def _no_match(pattern: str) -> str:
    message = f"corpus.input_pattern: no file matches {pattern}"
    if not any(sign in pattern for sign in "*?[") and uris.list_files(pattern):
        return f"{message}, which is a folder; write {pattern.rstrip('/')}/* for its files."
    folder = pattern.rpartition("/")[0]
    if any(sign in folder for sign in "*?["):
        return f"{message}."
    others = uris.list_files(folder)
    if not others:
        return f"{message}: the folder {folder} is empty or does not exist."
    return f"{message}; the folder has {len(others)} other files, such as {others[0]}."


def input_format(uri: str, config: PipelineConfig) -> InputFormat:
    """Return the format of an input file; ``auto`` goes by the end of its name."""
    chosen = config.corpus.input_format
    if chosen != "auto":
        return chosen
    return "jsonl" if uri.endswith((".jsonl", ".jsonl.gz")) else "text"
