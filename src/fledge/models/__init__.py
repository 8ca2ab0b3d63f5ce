"""Models: requests, replies, and the adapters that speak to real services."""
