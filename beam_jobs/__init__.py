"""The data job: raw text to a vocabulary, masked-LM records and the manifests that name them."""
