"""Runtimes: what drives a session's turn. `agent` is our own loop over a model and tools."""
