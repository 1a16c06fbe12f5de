"""The assets through which the pipeline's DAGs, and other systems, tell each other what happened.

They have a name and no address: where the corpus and the models lie is a setting of the deployment,
and an asset whose address changed would be another asset, without the history of the first.
"""

from __future__ import annotations

from airflow.sdk import Asset

CORPUS_PARTITION = Asset(name="corpus_partition", group="bert_repretraining")
"""A partition of the corpus has arrived or has changed. The event's partition key is its id."""

PROMOTED_MODEL = Asset(name="promoted_model", group="bert_repretraining")
"""Another model is in use. The event's extra names the lineage, the version and the reason."""
