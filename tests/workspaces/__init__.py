"""Folders of children, on a real disk."""
