"""Access to the store: URIs, file formats, names and the folder layout."""
