"""Where everything is kept: URIs, file formats, names and the folder layout of the store."""
