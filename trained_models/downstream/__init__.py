"""Reports whether re-pretraining helped: the results of fine-tuning, for programs and people."""
