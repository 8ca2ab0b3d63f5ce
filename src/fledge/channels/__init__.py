"""Channels to people outside: the interface, the terminal, signed webhooks, and incoming messages."""
