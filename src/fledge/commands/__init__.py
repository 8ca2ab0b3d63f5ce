"""The verbs: everything that a person, a program, the page or the command line can do with an open state folder, each
written once.

A verb is a function from parameters (a struct) to a value (a struct). Every door calls it: the gateway, the private
socket, slash commands, the command line. Configuration, hooks, rules and limits hold because nothing else writes.
"""
