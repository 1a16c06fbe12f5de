"""Fine-tuning: classifiers and regressors on our encoders, trained by the loop of pretraining."""
