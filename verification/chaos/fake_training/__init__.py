"""Jobs that stand in for the trainer and the evaluator; copied over them in a tree of its own."""
