"""Folders of children outside the database: making them, finding the files that they hand over, removing them."""
