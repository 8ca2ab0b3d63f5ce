"""The page that the gateway serves: plain HTML, CSS and ES modules, without a build step. `gateway/page.py` serves it."""
