"""The agent on a TPU VM: takes jobs from the attempt's mailbox, runs them and reports."""
