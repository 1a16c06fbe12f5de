"""How a job runs on its hosts and devices."""
