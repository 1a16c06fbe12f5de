"""The program, and its description, that the export side passes to the compile side.

Needs no TensorFlow.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pipeline_config import PipelineConfig

Source = Literal["ours", "tf_models_default", "tf_models_same_activation"]
"""Origin of a step: the trainer, or tf-models with its own activation or with ours."""
StepKind = Literal["train", "evaluation"]

# Layers and width of the published sizes, arXiv 1810.04805 and 1908.08962.
SIZES = {
    (2, 128): "tiny",
    (4, 256): "mini",
    (4, 512): "small",
    (8, 512): "medium",
    (12, 768): "base",
    (24, 1024): "large",
}


@dataclass(frozen=True)
class ProgramId:
    """The identity of one static program: model, step kind, rows and lengths."""

    model: str
    rows: int
    max_seq_length: int
    dropout: float
    source: Source = "ours"
    step: StepKind = "train"

    @property
    def name(self) -> str:
        """Return the name without the chip, such as ``bert_base_256x128``."""
        return f"{self.model}_{self.rows}x{self.max_seq_length}"

    @property
    def suffix(self) -> str:
        """Return how the program differs from our training step: ``_tf_models_default`` ..."""
        parts = [
            self.step if self.step != "train" else "",
            f"dropout{self.dropout:g}" if self.dropout else "",
            self.source if self.source != "ours" else "",
        ]
        return "".join(f"_{part}" for part in parts if part)

    def __str__(self) -> str:
        """Return a name for messages."""
        return self.name + self.suffix


def program_id(
    config: PipelineConfig, rows: int, *, step: StepKind = "train", source: Source = "ours"
) -> ProgramId:
    """Return the id of a configuration's step."""
    model = config.model
    shape = (model.num_hidden_layers, model.hidden_size)
    dropout = max(model.hidden_dropout_prob, model.attention_probs_dropout_prob)
    return ProgramId(
        model=f"{model.architecture}_{SIZES.get(shape, 'x'.join(map(str, shape)))}",
        rows=rows,
        max_seq_length=config.masking.max_seq_length,
        dropout=dropout if step == "train" else 0.0,
        source=source,
        step=step,
    )


@dataclass(frozen=True)
class Argument:
    """One argument of the program; those of the batch come first, then the variables."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    is_batch: bool


@dataclass(frozen=True)
class Program:
    """A step as XLA HLO with static shapes."""

    id: ProgramId
    hlo: bytes
    arguments: tuple[Argument, ...]

    def write(self, folder: Path) -> Path:
        """Write the program and a ``.json`` description of it; return the program's path."""
        path = folder / f"{self.id}.hlo.pb"
        path.write_bytes(self.hlo)
        description = {"program": dataclasses.asdict(self.id), "hlo_bytes": len(self.hlo)}
        description["arguments"] = [dataclasses.asdict(argument) for argument in self.arguments]
        path.with_suffix(".json").write_text(json.dumps(description, indent=1) + "\n")
        return path
