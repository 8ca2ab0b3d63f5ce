"""The Python API: open a state folder, spawn runs, wait for them, talk to conversations. A program begins with
`fledge.open`.

Everything here is a thin layer over the orchestrator: it reads rows, commits commands and waits for changes. The
command line, the chat and the gateway use it like any other program.
"""
