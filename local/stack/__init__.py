"""The whole system on one machine: PostgreSQL, Airflow, TPU emulator, TensorBoard, supervised.

From Python: ``from local.stack.stack import Stack``. Importing this package alone stays cheap,
because every Airflow task does (see :mod:`local.stack.hostname`).
"""
