"""A published encoder is continued on installed text, through the DAG, and judged."""
