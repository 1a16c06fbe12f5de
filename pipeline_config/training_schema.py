"""Settings of the model, its training, its evaluation and its promotion."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pipeline_config import patterns
from pipeline_config.sections import (
    LARGEST_STEP,
    Fraction,
    Mark,
    Section,
    Seed,
    StepCount,
    TaskName,
    UserId,
)


class ModelConfig(Section):
    """The model (names as in bert_config.json) and the lineage it belongs to."""

    lineage_id: str = Field(
        "default",
        pattern=patterns.NAME,
        description="Line of models that build on each other. Vocabulary and architecture are "
        "frozen within a lineage.",
    )
    architecture: Literal["bert", "distilbert", "roberta", "t5"] = Field(
        "bert",
        description="What is built of the sizes below; frozen for a lineage. distilbert: BERT's "
        "layers without segment types and pooler (arXiv 1910.01108). roberta: the same with "
        "byte-level BPE (arXiv 1907.11692). t5: an encoder and a decoder of equally many layers "
        "(arXiv 1910.10683), with masking.unit=sentinel and vocabulary.kind=t5.",
    )
    vocab_size: int = Field(
        30522, ge=300, le=250_000, description="Rows of the embedding; at least the vocabulary."
    )
    hidden_size: int = Field(768, ge=16, le=8192, description="Width of the encoder.")
    num_hidden_layers: int = Field(12, ge=1, le=96, description="Transformer layers.")
    num_attention_heads: int = Field(
        12, ge=1, le=128, description="Must divide hidden_size, but in t5 with attention_head_size."
    )
    attention_head_size: int | None = Field(
        None,
        ge=1,
        le=1024,
        description="t5: width of a head (its d_kv). Empty: hidden_size / num_attention_heads.",
    )
    intermediate_size: int = Field(3072, ge=16, le=32768, description="Width of feed-forward.")
    max_position_embeddings: int = Field(512, ge=16, le=8192, description="Longest row possible.")
    type_vocab_size: int = Field(2, ge=1, le=16, description="Segment types.")
    hidden_act: Literal["gelu", "gelu_new", "relu"] = Field(
        "gelu",
        description="gelu is the exact erf form (Hugging Face), gelu_new the tanh form of "
        "Google's BERT. They are different functions; keep the one a model was trained with. "
        "t5: relu is T5 1.0, gelu_new the gated form of T5 1.1, which has an output layer of its "
        "own.",
    )
    hidden_dropout_prob: float = Field(
        0.0,
        ge=0.0,
        lt=1.0,
        description="Dropout on hidden states; 0 is cheapest and exact on resume. t5: everywhere "
        "where it has dropout.",
    )
    attention_probs_dropout_prob: float = Field(
        0.0, ge=0.0, lt=1.0, description="Dropout on attention weights; not of t5."
    )
    init_checkpoint: Annotated[str | None, Mark.MODEL_PATH] = Field(
        None,
        description="What a new lineage starts from: a model version or training folder of ours, "
        "a Hugging Face folder, a TensorFlow 1 BERT checkpoint or one of tf-models; its vocabulary "
        "is vocabulary.uri. It becomes the lineage's first version, which the first update has to "
        "beat. Ignored when the lineage has a model in use, which is then the start.",
    )
    from_scratch: bool = Field(
        False,
        description="Where init_checkpoint is empty, a new lineage begins with random weights and "
        "a vocabulary of its own. BERT took 16 GB of text and four days of 64 TPU chips for that. "
        "Otherwise an empty init_checkpoint is refused.",
    )
    init_encoder_only: bool = Field(
        False,
        description="Of init_checkpoint, where it is not a model of ours, only the encoder is "
        "loaded; the masked-LM head begins anew. For models without one, or of another task.",
    )

    @property
    def has_segments(self) -> bool:
        """Whether the model has segment embeddings, which mark a token's segment."""
        return self.architecture == "bert"

    @property
    def has_byte_tokens(self) -> bool:
        """Whether its vocabulary is byte-level BPE."""
        return self.architecture == "roberta"

    @property
    def has_decoder(self) -> bool:
        """Whether it generates its predictions as text instead of filling masked positions."""
        return self.architecture == "t5"

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.attention_head_size or self.hidden_size // self.num_attention_heads

    def hashed(self) -> dict[str, Any]:
        """Return the settings that trained weights depend on, for a hash.

        The architecture and the width of heads are included only where they differ from what was
        fixed before they became settings, so that older trainings keep their hashes. Whether random
        weights were intended is left out: a training without initial weights has random ones.
        """
        added = {"architecture"} if self.architecture == "bert" else set()
        if self.attention_head_size is None:
            added.add("attention_head_size")
        return self.model_dump(mode="json", exclude={"from_scratch"} | added)


class OptimizerConfig(Section):
    """How weights are updated (names as in tf-models)."""

    type: Literal["adamw", "lamb", "amos"] = Field(
        "adamw",
        description="adamw and lamb of tf-models; amos (arXiv 2210.11693), which needs half the "
        "memory for its state and sets the weight decay by itself.",
    )
    learning_rate: float = Field(
        1e-4,
        gt=0.0,
        le=1.0,
        description="Peak rate. adamw: 1e-4 from scratch, 2e-5 when continuing. amos: about 1e-2.",
    )
    warmup_steps: int = Field(
        100, ge=0, le=10_000_000, description="Steps of linear rise to the peak rate."
    )
    update_learning_rate: float | None = Field(
        None,
        gt=0.0,
        le=1.0,
        description="Peak rate of a run that continues the lineage's model in use; each begins a "
        "schedule of its own. Empty: learning_rate.",
    )
    carry_slots: bool = Field(
        False,
        description="A run that continues the lineage's model in use begins with the moments of "
        "that model's optimizer instead of zeros. The optimizer's type has to be the same.",
    )
    learning_rate_schedule: Literal["linear", "cosine", "constant_then_linear"] = Field(
        "linear",
        description="How the rate falls after the warm-up: on a line, on half a cosine, or not at "
        "all until the last decay_steps, where it is a line.",
    )
    decay_steps: int = Field(
        0, ge=0, le=100_000_000, description="constant_then_linear: last steps, of falling rate."
    )
    end_learning_rate: float = Field(0.0, ge=0.0, le=1.0, description="Rate at the last step.")
    weight_decay_rate: float = Field(
        0.01,
        ge=0.0,
        le=1.0,
        description="Decoupled decay; not on bias and LayerNorm, not used by amos.",
    )
    beta_1: float = Field(0.9, ge=0.0, lt=1.0, description="Decay of the first moment.")
    beta_2: float = Field(0.999, ge=0.0, lt=1.0, description="Decay of the second moment.")
    epsilon: float = Field(1e-6, gt=0.0, le=1.0, description="Added to the root of the moment.")
    clip_norm: float = Field(
        1.0, gt=0.0, le=1000.0, description="Largest global norm of the gradient."
    )


class TrainingConfig(Section):
    """The training loop (names as in tf-models)."""

    train_steps: StepCount = Field(
        1000,
        description="Steps of this run. auto: as many as go over its text max_passes times, "
        "decided when the rows are counted; see docs/reference/training.md.",
    )
    max_passes: float | None = Field(
        None,
        ge=0.0,
        le=1_000_000.0,
        description="Most times that a run goes over its own text: auto takes as many, a number of "
        "steps that makes more is refused. Empty: 40, or 5 with masks drawn once "
        "(masking.dynamic=false). 0: no limit.",
    )
    max_train_steps: int = Field(
        1_000_000,
        ge=1,
        le=LARGEST_STEP,
        description="Most steps that auto takes, however much text there is; BERT had a million.",
    )
    partitions: Literal["own", "left_out", "unseen"] = Field(
        "left_out",
        description="own: train on the run's own partition. left_out: and on those whose run was "
        "rejected or failed, until they have been rejected twice. unseen: and on every other "
        "prepared one that the model in use has not seen, once for all of a backfill; its other "
        "runs then find nothing left to do.",
    )
    train_again: bool = Field(
        False,
        description="Train on the partition even if the model in use has seen it as it is.",
    )
    global_batch_size: int = Field(
        256, ge=1, le=65536, description="Rows per step over all replicas together."
    )
    gradient_accumulation_steps: int = Field(
        1,
        ge=1,
        le=4096,
        description="Parts that a replica computes its share of a batch in, one after the other: "
        "the same update with less memory.",
    )
    extra_steps_fraction: Fraction = Field(
        0.0,
        description="Share of the steps, the last ones, that train on rows of "
        "masking.extra_max_seq_length; 0.1 as in BERT. 0: none.",
    )
    extra_global_batch_size: int = Field(
        64, ge=1, le=65536, description="Rows per step of masking.extra_max_seq_length."
    )
    replay_fraction: Fraction = Field(
        0.2,
        description="Share of each batch from partitions that the model in use has seen, against "
        "forgetting; a first model has none. 0: no replay.",
    )
    frozen_layers: int = Field(
        0,
        ge=0,
        le=96,
        description="Lowest layers that keep their weights, the embeddings with them. 0: all "
        "weights are trained.",
    )
    head_steps: int | None = Field(
        None,
        ge=0,
        le=LARGEST_STEP,
        description="Steps in which a new masked-LM head (model.init_encoder_only) is trained "
        "alone, before the first training of the lineage's whole model and beside its steps. What "
        "they make is what the first update is compared with. Empty: as many as the training's, at "
        "most 2000. 0: head and encoder are trained together from the first step.",
    )
    steps_per_loop: int = Field(
        100, ge=1, le=100_000, description="Steps between two returns to Python (logs, signals)."
    )
    checkpoint_interval: int = Field(
        1000, ge=1, le=10_000_000, description="Steps between checkpoints: most work ever lost."
    )
    max_to_keep: int = Field(3, ge=2, le=1000, description="Newest checkpoints kept.")
    keep_best: bool = Field(
        False,
        description="The result is the checkpoint of the lowest held-out loss, not the last; needs "
        "evaluation.rows_per_checkpoint.",
    )
    early_stop_evaluations: int = Field(
        0,
        ge=0,
        le=1000,
        description="Stop after so many checkpoints in a row without a lower held-out loss. 0: "
        "train all steps.",
    )
    max_rollbacks: int = Field(
        2,
        ge=0,
        le=100,
        description="Times that a loss which is not finite, or rises by max_loss_increase, is "
        "answered by going back to the last checkpoint and passing over the records since.",
    )
    max_loss_increase: float | None = Field(
        None,
        gt=0.0,
        le=1000.0,
        description="Rise of a loop's mean loss over the running mean, in nats per token, that "
        "counts as a spike. Empty: only a loss that is not finite does.",
    )
    mixed_precision_dtype: Literal["float32", "bfloat16"] = Field(
        "float32", description="Type of the arithmetic; variables stay float32."
    )
    residual_dtype: Literal["float32", "bfloat16"] = Field(
        "float32",
        description="Type of the hidden states between layers. bfloat16 moves a tenth fewer bytes "
        "on a TPU; needs mixed_precision_dtype=bfloat16.",
    )
    distribution_strategy: Literal["one_device", "mirrored", "multi_worker_mirrored", "tpu"] = (
        Field(
            "tpu",
            description="tpu on a TPU VM; one_device on a CPU, as in the local stack; mirrored: "
            "all devices of a machine; multi_worker_mirrored: machines that TF_CONFIG names.",
        )
    )
    random_seed: int = Field(
        1, ge=0, le=2**31 - 1, description="Seed of the initial weights and of the record order."
    )

    @property
    def steps(self) -> int:
        """Return the number of steps of this run, once it is decided.

        :raises ValueError: ``train_steps`` is still auto.
        """
        if self.train_steps == "auto":
            raise ValueError("training.train_steps is auto, which the run's plan decides.")
        return self.train_steps


class EvaluationConfig(Section):
    """How candidate and baseline are compared."""

    global_batch_size: int = Field(256, ge=1, le=65536, description="Rows per evaluation step.")
    rows_per_checkpoint: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="Held-out rows of the trained partitions that each checkpoint is scored on "
        "while training: the learning curve. 0: none.",
    )
    pattern: str | None = Field(
        None,
        max_length=200,
        description="Names of prepared partitions, with * and ?, separated by commas: checkpoints "
        "are scored on held-out rows of these, in place of the trained ones'. Empty: of those.",
    )
    max_records_per_set: int = Field(
        100_000,
        ge=1,
        description="Most held-out rows used of each set; whole documents, chosen by their hash.",
    )
    max_sets: int = Field(
        10,
        ge=2,
        le=1000,
        description="Most sets of held-out documents that models are scored on: the run's own, "
        "that of general_partition, and of other partitions those whose names have the smallest "
        "hashes. See docs/operate/promotion.md.",
    )
    general_partition: str | None = Field(
        None,
        max_length=63,
        description="A prepared partition of general text, never trained on, whose held-out "
        "documents both models are also scored on. Empty: none.",
    )


class PromotionConfig(Section):
    """When a candidate replaces the model in use."""

    min_documents: int = Field(
        20, ge=2, le=10_000_000, description="Held-out documents needed for any verdict."
    )
    min_improvement: float = Field(
        0.01,
        ge=0.0,
        le=100.0,
        description="Nats per token by which the candidate must beat the model in use on the "
        "run's own held-out documents. More than what another seed makes of a model; see "
        "docs/operate/promotion.md.",
    )
    confidence: float = Field(
        0.95, ge=0.5, lt=1.0, description="Confidence of the bootstrap interval over documents."
    )
    max_forgetting: float = Field(
        0.1,
        ge=0.0,
        le=100.0,
        description="Nats per token that the candidate may lose, against the model in use, on the "
        "held-out documents of an earlier partition.",
    )
    max_total_forgetting: float = Field(
        0.2,
        ge=0.0,
        le=100.0,
        description="Nats per token that the candidate may lose on such documents against the best "
        "version that the lineage has had on them, so that small losses do not add up unseen: two "
        "updates that each lose all of max_forgetting, see docs/operate/promotion.md.",
    )
    require_approval: bool = Field(
        False,
        description="A person must approve, in Airflow under Required Actions, before a better "
        "candidate is put into use.",
    )
    approval_timeout_hours: float = Field(
        72.0,
        gt=0.0,
        le=720.0,
        description="Without an answer for so long the candidate is not put into use; until then "
        "no other run of the lineage trains.",
    )
    approvers: Annotated[list[UserId], Mark.BY_INSTALLATION] = Field(
        [],
        max_length=100,
        description="Users, by the ids of Airflow's auth manager, one of whom must approve; never "
        "whoever triggered the run. Empty: whoever may answer in Airflow. With names here "
        "require_approval is on, and requests cannot switch it off.",
    )
    probe_tasks: Annotated[list[TaskName], Mark.TASKS] = Field(
        [],
        max_length=20,
        description="Labeled tasks, names of folders tasks/NAME in the store, on which the "
        "candidate and the model in use are compared before it is promoted. Empty: by loss alone.",
    )
    probe_mode: Literal["frozen", "full"] = Field(
        "frozen",
        description="frozen: train a classifier on what the encoder knows already, which is cheap. "
        "full: fine-tune all of it.",
    )
    probe_random_seeds: list[Seed] = Field(
        [1, 2, 3, 4, 5],
        min_length=1,
        max_length=50,
        description="Seeds of the classifiers, one training of each model on each task; five tell "
        "chance from difference far better than three, see docs/guides/did-it-pay.md.",
    )
    max_probe_loss: float = Field(
        0.01,
        ge=0.0,
        le=1.0,
        description="What the candidate may lose of a probe task's metric, such as 0.01 of the "
        "accuracy. It is rejected if it has lost more with confidence.",
    )
    max_total_probe_loss: float = Field(
        0.02,
        ge=0.0,
        le=1.0,
        description="What the candidate may lose of it against the best version that the lineage "
        "has had on the task, so that small losses do not add up unseen: twice max_probe_loss.",
    )
    max_retrieval_loss: float | None = Field(
        0.02,
        ge=0.0,
        le=1.0,
        description="What the candidate may lose of recall@1, the share of held-out documents "
        "whose second half its embedding of the first half finds first. It is rejected if it has "
        "lost more with confidence. Empty: not judged.",
    )
    max_total_retrieval_loss: float = Field(
        0.04,
        ge=0.0,
        le=1.0,
        description="What it may lose on the documents of an earlier partition against the best "
        "version that the lineage has had on them; judged where max_retrieval_loss is.",
    )
    judge_retrieval: Literal["sentence_encoders", "always"] = Field(
        "sentence_encoders",
        description="Whose candidates max_retrieval_loss rejects. sentence_encoders: of lineages "
        "that began with a model of sentence-transformers. always: of every lineage.",
    )
    export_formats: list[Literal["hugging_face", "saved_model"]] = Field(
        ["hugging_face", "saved_model"],
        max_length=2,
        description="Formats besides tf-models' checkpoint in which a promoted model is published: "
        "hugging_face (a folder for transformers), saved_model (TensorFlow, text in, words out).",
    )
