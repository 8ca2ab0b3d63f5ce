"""A strict model server whose answers stop where the test wants: `⟦name⟧` in a text holds the stream until the test
opens that gate. For scenes in which something else happens in the middle of an answer.
"""

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fledge.models.base import Call
from fledge.models.scripted import ScriptedReply
from tests.cli.model_server import Model, serving
from tests.models.openai_server import OpenAIServer
from tests.models.serving import Action, Answer, Body, Send, Wait

GATE = re.compile("⟦(.*?)⟧")
Says = Callable[[str, Body], Answer]
"""What is answered to the last words, for the whole request."""


class Stage(Model):
    """The server, and its gates."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._open: set[str] = set()
        self._waiting: dict[str, list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._lock = threading.Lock()

    def go_on(self, gate: str) -> None:
        """Let answers go on behind this gate, from now on."""
        with self._lock:
            self._open.add(gate)
            for loop, event in self._waiting.pop(gate, []):
                loop.call_soon_threadsafe(event.set)

    def wait(self, gate: str) -> Wait:
        """Hold a stream at this gate."""
        event = asyncio.Event()
        with self._lock:
            if gate in self._open:
                event.set()
            else:
                self._waiting.setdefault(gate, []).append((asyncio.get_running_loop(), event))
        return Wait(event)

    def actions(self, body: Body, reply: ScriptedReply) -> list[Action]:
        """The reply as a stream that stops at its gates."""
        render = OpenAIServer([])
        first, *parts = GATE.split(reply.text)
        chunks = render.chunks(body, ScriptedReply(first, reply.calls, usage=reply.usage))
        if not parts:
            return [Send(chunk) for chunk in chunks]
        found: list[Action] = [Send(chunk) for chunk in render.chunks(body, ScriptedReply(first))[:-2]]
        for gate, text in zip(parts[::2], parts[1::2], strict=True):
            found += [self.wait(gate), Send(render.chunk(body, {"content": text}))]
        return [
            *found,
            *(Send(chunk) for chunk in render.chunks(body, ScriptedReply("", reply.calls, usage=reply.usage))[1:]),
        ]


@contextmanager
def staged(tmp_path: Path, says: Says) -> Iterator[Stage]:
    """A server that answers by this function, as long as the block lasts."""
    stage: list[Stage] = []

    async def script(body: Body) -> Answer:
        last = body["messages"][-1]
        answer = says(str(last["content"]).strip(), body)
        return stage[0].actions(body, answer) if isinstance(answer, ScriptedReply) else answer

    with serving(tmp_path, script) as model:
        stage.append(Stage(model.port.parent))
        yield stage[0]


def is_child(body: Body) -> bool:
    """True of a subagent's request."""
    return "# Subagent Context" in body["messages"][0]["content"]


def call(tool: str, **arguments: Any) -> Call:
    """A call of a tool."""
    return Call("", tool, json.dumps(arguments))
