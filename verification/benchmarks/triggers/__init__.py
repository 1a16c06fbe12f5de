"""How many TPU triggers one process carries."""
