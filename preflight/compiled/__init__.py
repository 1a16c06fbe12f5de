"""What the TPU compiler said of the presets' programs: figures that ship with the product."""
