"""A model server for the page: as in chats, and a child that waits, and words that would act if they could."""

import asyncio
from pathlib import Path

from fledge.core.prompts import task_of
from fledge.models.base import Call
from fledge.models.scripted import ScriptedReply
from tests.cli.chat_server import talk
from tests.models.openai_server import OpenAIServer
from tests.models.serving import Answer, Body, Hang, Script, Send, Status

HOSTILE = (
    "<img src=x onerror=\"window.hacked='img'\"><script>window.hacked='script'</script>"
    "<a href=\"javascript:window.hacked='a'\">click</a> \x1b[31mred\x07 \u202egnirts"
)
SHOWN = HOSTILE.replace("\x1b", "␛").replace("\x07", "␇").replace("\u202e", "<U+202E>")
STORY = "Once upon a time **there was** a page. " * 20 + "The end."
WAIT = '{"task": "wait for me", "label": "waiter"}'
ACT = f'{{"task": "hostile <b>task</b>", "label": "{"<i>label</i>"}"}}'


async def created(file: Path) -> None:
    """Return once the file is there."""
    for _ in range(60_000):
        if await asyncio.to_thread(file.exists):
            return
        await asyncio.sleep(0.01)


def speaking(release: Path) -> Script:
    """What it says; children that wait go on once the file `release` is there. A story breaks off in the middle the
    first time it is told."""
    told = set[str]()
    renderer = OpenAIServer([])

    async def speak(body: Body) -> Answer:
        """One reply."""
        system, last = body["messages"][0]["content"], body["messages"][-1]
        words = task_of(last["content"]).strip()
        if "# Subagent Context" in system:
            if "hostile" in words:
                return ScriptedReply(HOSTILE)
            if words.startswith("wait for me"):
                await created(release)
                return ScriptedReply("I waited")
            return talk(body) if "dig" in words else ScriptedReply(f"child heard: {words[-40:]}")
        if last["role"] == "user":
            match words:
                case "fail":
                    return [Status(400, {"error": {"message": "no such luck", "type": "invalid_request_error"}})]
                case "wait":
                    return ScriptedReply("", (Call("", "sessions_spawn", WAIT),))
                case "act":
                    return ScriptedReply("", (Call("", "sessions_spawn", ACT),))
                case "story" if "story" not in told:
                    told.add("story")
                    chunks = renderer.chunks(body, ScriptedReply(STORY))
                    return [*map(Send, chunks[: len(chunks) // 2]), Hang()]
                case "story":
                    return ScriptedReply(STORY)
                case text if "child heard" in text:
                    return ScriptedReply("The waiter changed its mind.")
                case text if "onerror" in text:
                    return ScriptedReply(f"It said: {HOSTILE}")
                case text if "I waited" in text:
                    return ScriptedReply("The waiter is done.")
        return talk(body)

    return speak
