"""Subagents whose answers arrive: once, in the right conversation, whatever happens."""

__version__ = "0.1.0"
