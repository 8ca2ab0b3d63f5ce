"""Durable state. `base` is the contract in verbs of the domain; nothing outside this package speaks SQL."""
