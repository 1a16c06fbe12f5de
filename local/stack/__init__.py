"""The whole system on one machine: PostgreSQL, Airflow, TPU emulator, TensorBoard, supervised.

From Python: ``from local.stack.stack import Stack``. Importing this package alone must stay cheap,
because every Airflow task imports it (see :mod:`local.stack.hostname`).
"""
