"""Our tokenizer alone, one thread, on text that is in memory already; the ids are numpy arrays."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from corpus.tokens.lineage_vocabulary import read_vocabulary
from corpus.tokens.tokenizing import make_tokenizer
from verification.benchmarks.data.peers import command


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tokens and the seconds spent on them; start-up is not among these."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    options = command.parse(__doc__, argv)
    vocabulary = read_vocabulary(str(options.vocabulary))
    tokenizer = make_tokenizer(vocabulary, do_lower_case=vocabulary.kind != "bpe")
    read = command.lines if options.unit == "line" else command.documents
    texts = list(read(options.shards))
    tokens = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    for chunk in command.chunks(texts):
        ids, _ = tokenizer.encode(chunk)
        tokens += len(ids)
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    print(json.dumps({"tokens": tokens, "seconds": seconds, "cpu_seconds": cpu}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
