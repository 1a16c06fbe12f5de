"""The sides of the speed contest, each a process of its own."""
