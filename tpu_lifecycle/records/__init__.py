"""What the store has of a TPU: reservation, attempts, holder, budgets, ledger."""
