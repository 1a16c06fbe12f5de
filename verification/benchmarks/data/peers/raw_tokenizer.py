"""The limit: Hugging Face's Rust tokenizer alone, one thread, on text that is in memory already.

Nothing is read, cleaned, packed, masked or written, and the ids are not even taken out of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence

from tokenizers import Tokenizer

from verification.benchmarks.data.peers import command


def main(argv: Sequence[str] | None = None) -> int:
    """Print the tokens and the seconds spent on them; start-up is not among these."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    options = command.parse(__doc__, argv)
    if options.vocabulary.suffix == ".json":
        tokenizer = Tokenizer.from_file(str(options.vocabulary))
        # As in the data job: `<s>` in a text is text.
        tokenizer.encode_special_tokens = True
    else:
        tokenizer = command.load(options.vocabulary)
    read = command.lines if options.unit == "line" else command.documents
    texts = list(read(options.shards))
    tokens = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    for chunk in command.chunks(texts):
        encodings = tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
        tokens += sum(map(len, encodings))
    seconds, cpu = time.perf_counter() - began, time.process_time() - began_cpu
    print(json.dumps({"tokens": tokens, "seconds": seconds, "cpu_seconds": cpu}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
