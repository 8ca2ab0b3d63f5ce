"""Ways to people outside: what a channel is, the terminal, signed webhooks, and words that come in."""
