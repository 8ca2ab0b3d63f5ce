"""Tools: typed functions that a model may call, and the built-in ones."""
