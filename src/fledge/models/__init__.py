"""Models: what is asked of one, what it answers, and the adapters that speak to real services."""
