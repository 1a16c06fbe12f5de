"""Shows that no TPU is left whatever breaks, with scenarios on a real Airflow and the TPU emulator.

Copy-paste: ``make leak-matrix``; see ``docs/evidence/leak-matrix.md``.
"""
