"""The page that the gateway serves: plain HTML, CSS and ES modules, no build step. `gateway/page.py` serves it."""
