"""Rigs that verify the product: leak matrix, chaos, schedule check, benchmarks, images, TPU compiler."""
