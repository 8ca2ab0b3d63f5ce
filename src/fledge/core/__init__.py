"""The rules, pure: no clock, no disk, no asyncio, no sqlite3, no uuid.

Everything here is a function of its arguments. Time, ids and limits arrive on events; facts about other runs too.
"""
