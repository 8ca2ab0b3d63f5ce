"""`python -m fledge.config` prints the settings reference."""

from fledge.config.reference import page

print(page(), end="")
