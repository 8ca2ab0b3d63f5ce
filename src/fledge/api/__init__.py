"""What a Python program uses: open a state folder, spawn, wait, talk. `fledge.open` is the way in.

Everything here is a thin shell over the orchestrator: it reads rows, commits commands and waits for changes. The
command line, the chat and the gateway use it like any other program.
"""
