"""Folders of children: what is made for them outside the database, what they hand over, how all of it goes."""
