"""The main job on this machine, with real text and no cloud."""
