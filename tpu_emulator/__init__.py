"""An emulator of the Cloud TPU v2 API on a Unix socket, whose TPU VMs are local processes."""
