"""Builds the images of docker/, tests them, and lists their contents."""
