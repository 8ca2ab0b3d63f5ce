"""The screen of a chat: an answer that streams, subagents at work below it, and a line to type in.

Pure, and tested without a terminal: `cells` (columns, styles, word wrap), `inline` and `markdown` (streamed markdown as
rows), `shown` (what a chat shows and what a person wants), `scrollback` (the order of what stays), `region` (the live
rows below it), `keys` (which key does what), `picture` (the bytes that turn one picture into the next).
The shell: `writer` (a thread that writes to the terminal), `screen` (prompt_toolkit), `plain` (pipes, dumb terminals,
screen readers), `here` (files and commands of the person's own machine), `opening` (which screen fits).
"""
