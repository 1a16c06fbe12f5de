"""Builds the images of docker/, tries them, and lists what is in them."""
