"""`Fledge`: an open state folder, as a program uses it. Spawn runs and wait for them, talk to conversations, look at
everything, answer what waits for a person. What each of these does is decided elsewhere; this is the way to it.
"""

from fledge.api.answering import Answering
from fledge.api.talking import Talking


class Fledge(Answering, Talking):
    """An open state folder. Made by `fledge.open`; use it in `async with`.

    >>> run = await fl.spawn("Say hello")
    >>> (await run).text
    'echo: Say hello'
    """
