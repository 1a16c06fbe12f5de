"""One model in memory, set to the weights of one model after the other."""

from __future__ import annotations

import tf_keras

from pipeline_config import PipelineConfig
from pipeline_store.layout import StoreLayout
from trained_models.loaded_weights import LoadedWeights
from trained_models.weight_names import OUTPUT_BIAS, WORD_EMBEDDINGS
from training.architectures.models import named_variables
from training.importing.loading import scored_model
from training.model.checkpoints import load_weights

# What weights from elsewhere may lack, wholly or in some rows.
_PARTIAL = (WORD_EMBEDDINGS, OUTPUT_BIAS, "pooler_transform/kernel", "pooler_transform/bias")


class ScoredModels:
    """Sets a built model to weights, so that nothing of those before is left in it."""

    def __init__(self, model: tf_keras.Model, store: StoreLayout, config: PipelineConfig) -> None:
        self._model = model
        self._store = store
        self._config = config
        self._initial = {
            name: variable.numpy()
            for name, variable in named_variables(model).items()
            if name.endswith(_PARTIAL)
        }

    def load(self, uri: str) -> LoadedWeights:
        """Set the model to weights of ours or from elsewhere.

        :raises UserError: they do not fit, or cannot be scored; the message says why.
        :raises FormatError: a file of a model of ours does not verify.
        :raises BadDataError: a file of another model is damaged.
        """
        variables = named_variables(self._model)
        for name, value in self._initial.items():
            variables[name].assign(value)
        return load_weights(self._model, scored_model(uri, self._store, self._config))
