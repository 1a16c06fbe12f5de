"""The vocabulary of a lineage, as it makes the tokens of labelled texts."""

from __future__ import annotations

from dataclasses import dataclass

from beam_jobs.labelled.conversion import TaskConverter
from corpus.errors import UserError
from corpus.tokens.lineage_vocabulary import read_committed
from corpus.tokens.tokenizing import make_tokenizer
from corpus.tokens.vocabulary import Vocabulary
from pipeline_config import TaskConfig
from pipeline_store.formats import VocabularyInfo
from pipeline_store.layout import StoreLayout


@dataclass(frozen=True)
class TaskVocabulary:
    """A lineage's vocabulary, whether its text is put into lower case, and the length of rows."""

    vocabulary: Vocabulary
    do_lower_case: bool
    max_seq_length: int

    @classmethod
    def load(cls, store: StoreLayout, lineage_id: str, max_seq_length: int) -> TaskVocabulary:
        """Read what the lineage began with.

        :raises UserError: it has no vocabulary, or that is damaged.
        """
        lineage = store.lineage(lineage_id)
        info = VocabularyInfo.load_or_none(lineage.vocabulary_info)
        if info is None:
            raise UserError(
                f"lineage {lineage_id!r} has no vocabulary ({lineage.vocabulary_info}), so it has "
                "no model to fine-tune. Pre-train or import one first, or name another lineage."
            )
        return cls(read_committed(info, lineage), info.do_lower_case, max_seq_length)

    @property
    def sha256(self) -> str:
        """Hash of what defines the vocabulary."""
        return self.vocabulary.sha256

    def converter(self, task: TaskConfig) -> TaskConverter:
        """Return what makes a task's records."""
        tokenizer = make_tokenizer(self.vocabulary, self.do_lower_case)
        return TaskConverter(task, self.vocabulary, tokenizer, self.max_seq_length)
