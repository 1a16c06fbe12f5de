"""Whether re-pretraining paid: what a fine-tuning run came to, for programs and for people."""
