"""Demo that continues a published encoder on installed text, through the DAG, and judges it."""
