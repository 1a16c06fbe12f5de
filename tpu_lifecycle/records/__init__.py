"""Records of a TPU in the store: reservation, attempts, holder, budgets, ledger."""
