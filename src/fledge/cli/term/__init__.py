"""The screen of a chat: an answer that streams, subagents at work below it, and a line to type in.

Pure, and tested without a terminal: `cells` (columns, styles, word wrap), `inline` and `markdown` (streamed markdown as
rows), `shown` (the values that a chat shows, and the person's wishes), `figures` (figures of a subagent that ended),
`scrollback` (the order of the rows that stay), `region` (the live rows below it), `keys` (which key does what),
`sequences` (what the terminal sends, divided into keys and reports), `picture` (the bytes that turn one picture into
the next).
The shell: `writer` (a thread that writes to the terminal), `screen` (prompt_toolkit), `inplace` (a live region without
an input), `outputs` (standard output and standard error), `plain` (pipes, dumb terminals, screen readers), `here`
(files and commands of the person's own machine), `opening` (which screen fits).
"""
