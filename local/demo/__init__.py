"""The whole pipeline on this machine, with real text and no cloud."""
