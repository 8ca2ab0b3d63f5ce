"""Decisions of `core` put to work on a `store`: jobs that load, decide and save, and the loop that asks what is due."""
