"""Counts the records and real tokens of TFRecord files, for peers that do not report them."""

from __future__ import annotations

import json
import sys


def main() -> int:
    """Print the totals over the files on the command line."""
    import tensorflow as tf

    records = tokens = 0
    features = {"input_mask": tf.io.VarLenFeature(tf.int64)}
    for batch in tf.data.TFRecordDataset(sys.argv[1:]).batch(1024):
        masks = tf.io.parse_example(batch, features)["input_mask"]
        records += int(masks.dense_shape[0])
        tokens += int(tf.reduce_sum(masks.values))
    print(json.dumps({"records": records, "tokens": tokens}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
