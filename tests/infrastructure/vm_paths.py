"""Places in the store, by what a TPU VM has to do with them; relative to the store's root."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline_store.layout import StoreLayout

STORE = StoreLayout("S")
RUN = STORE.run("0a1b2c3d4e5f")
MAILBOX = RUN.reservation(1).attempt(2)
LINEAGE = STORE.lineage("training")


def paths(*uris: str) -> Iterator[str]:
    return (uri.removeprefix("S/") for uri in uris)


REPORTS = list(
    paths(
        *(MAILBOX.hello(0), MAILBOX.heartbeat(63), MAILBOX.status(0, "010-train")),
        *(MAILBOX.log_chunk(0, "010-train", 7), MAILBOX.hang("010-train", 1, 0)),
        *(RUN.training.checkpoint(10), RUN.training.result, RUN.training.initial_weights),
        *(RUN.training.attempt_files("t") + "/x", RUN.training.events + "/x"),
        *(RUN.evaluation(None), RUN.evaluation("v-1"), RUN.probe(None), RUN.head("v-1").result),
        *(RUN.trial("t").result, RUN.trial("t").training.result, RUN.trial("t").attempt_files("u")),
        RUN.probe_trial(None, "t").result,
    )
)
# By which somebody else decides, or which a VM takes orders from. Names as hostile as may be.
DECISIONS = list(
    paths(
        *(MAILBOX.record, MAILBOX.job("010-train"), MAILBOX.signature("010-train", "0" * 64)),
        *(MAILBOX.limits("010-train"), MAILBOX.lease, MAILBOX.bill, MAILBOX.mark("ready")),
        *(MAILBOX.job("workers"), MAILBOX.log_cursor("training", "workers")),
        *(RUN.reservation(1).record, RUN.reservation(1).released, RUN.reservation(1).ledger),
        *(RUN.record, RUN.config, RUN.plan, RUN.finetuning_plan, RUN.estimate, RUN.holder),
        *(RUN.verdict(None), RUN.verdict("training"), RUN.approval, RUN.outcome),
        *(RUN.prepared_partition, RUN.prepared_task("training"), RUN.training_summary),
        *(RUN.exports.record, RUN.exports.format_files("u", "saved_model") + "/x"),
        *(RUN.trial_exports("first-noun.model.0.003.1").record, RUN.predictions("training")),
        *(LINEAGE.production, LINEAGE.lease, LINEAGE.model("v-1"), LINEAGE.version("v-1") + "/x"),
        *(LINEAGE.vocabulary_info, LINEAGE.manifest("training", "0")),
        *(STORE.bundle("0" * 64), STORE.shard_manifest("k"), STORE.installation, "corpus/x"),
        STORE.job_key("0a1b2c3d4e5f", 1),
    )
)
