"""Runs Hugging Face's tokenizers and masking collator as their example ``run_mlm.py`` does.

Reads, tokenizes and joins the documents, cuts them into rows of 128, masks them and writes the
arrays with numpy. Does not look for duplicates, split into train and validation, build sentence
pairs or write TFRecords, so it does less work than our data job.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from verification.benchmarks.data.peers import command

_MAX_SEQ_LENGTH = 128
_ROWS_AT_ONCE = 1000  # both as many rows as `datasets.map` and run_mlm.py take at a time


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; print the number of tokens written."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    options = command.parse(__doc__, argv)
    from transformers import DataCollatorForLanguageModeling

    tokenizer = _tokenizer(options.vocabulary)
    collator = DataCollatorForLanguageModeling(
        tokenizer, mlm=True, mlm_probability=0.15, return_tensors="np", seed=12345
    )
    rows = 0
    for number, examples in enumerate(_rows(tokenizer, options.shards)):
        batch = collator(examples)
        rows += len(examples)
        np.savez(options.output / f"{number:06d}.npz", **batch)
    print(json.dumps({"tokens": rows * _MAX_SEQ_LENGTH}))
    return 0


def _tokenizer(vocabulary: Path) -> Any:
    from tokenizers.processors import BertProcessing
    from transformers import PreTrainedTokenizerFast

    backend = command.load(vocabulary)
    sep, cls = ((token, backend.get_vocab()[token]) for token in ("[SEP]", "[CLS]"))
    backend.post_processor = BertProcessing(sep, cls)
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    special = dict(zip(names, command.SPECIAL_TOKENS, strict=True))
    return PreTrainedTokenizerFast(tokenizer_object=backend, **special)


def _rows(tokenizer: Any, shards: Sequence[Path]) -> Iterator[list[dict[str, list[int]]]]:
    """Yield groups of full rows; the rest of each group is dropped, as in run_mlm.py."""
    texts = list(command.documents(shards))
    for start in range(0, len(texts), _ROWS_AT_ONCE):
        encoded = tokenizer(texts[start : start + _ROWS_AT_ONCE], return_special_tokens_mask=True)
        joined = {name: list(chain.from_iterable(encoded[name])) for name in encoded}
        total = len(joined["input_ids"]) // _MAX_SEQ_LENGTH * _MAX_SEQ_LENGTH
        rows = [
            {name: values[at : at + _MAX_SEQ_LENGTH] for name, values in joined.items()}
            for at in range(0, total, _MAX_SEQ_LENGTH)
        ]
        for at in range(0, len(rows), _ROWS_AT_ONCE):
            yield rows[at : at + _ROWS_AT_ONCE]


if __name__ == "__main__":
    sys.exit(main())
