"""Jobs that replace the trainer and the evaluator in a copy of the code."""
