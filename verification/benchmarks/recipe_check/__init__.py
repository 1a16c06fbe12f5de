"""Shows on small models that the defaults of a training are better than what they replaced."""
