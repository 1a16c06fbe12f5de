"""The check that hung jobs are found, explained and restarted, and that slow jobs are not."""
