"""Takes the place of the trainer on the matrix's TPU VMs."""
