"""The replies of the scripted model of the demo. It reads the real results of the tools, and takes its time.

It has no memory: a reply follows from the request alone, so a restarted program gets the same replies.
"""

import asyncio
import re

from fledge.models.base import Request, ToolMessage, UserMessage
from fledge.models.scripted import ScriptedReply, use

SURVEY, QUESTIONS, TIDY = "survey", "open questions", "tidy-up"
PROMPT = "Look over this folder for me: what is in it, what is left to do, and how could it be tidied?"
TASKS = {
    SURVEY: "Survey the folder: count what is in it.",
    QUESTIONS: "Find open questions: lines marked TODO or FIXME.",
    TIDY: "Tidy up: say which files could be moved or merged.",
}
PLAN = "Look, then name files."
STEP_S = 0.5
SLOW_S = 2.5


async def script(request: Request) -> ScriptedReply:
    """The next reply to the agent that sends the request."""
    name = next((name for name, task in TASKS.items() if task in request.system), None)
    if "# Subagent Context" not in request.system or name is None:
        await asyncio.sleep(STEP_S / 2)
        return _main(request)
    await asyncio.sleep(SLOW_S if name == QUESTIONS else STEP_S)
    results = _results(request)
    match name:
        case "survey":
            return _survey(results)
        case "open questions":
            return _questions(request, results)
        case _:
            return _tidy(request, results)


def _main(request: Request) -> ScriptedReply:
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return ScriptedReply("Three subagents are at work. I will tell you as they report; ask me anything meanwhile.")
    if last.text == PROMPT:
        calls = [use("sessions_spawn", task=TASKS[name], label=name) for name in (SURVEY, QUESTIONS)]
        return ScriptedReply(calls=(*calls, use("sessions_spawn", task=TASKS[TIDY], label=TIDY, planMode=True)))
    found = [words for words in dict.fromkeys(re.findall(r"SUMMARY: (.*)", last.text)) if words != PLAN]
    if "[PLAN READY]" in last.text:
        found.append(f'The plan of "{TIDY}" is ready and waits for your approval.')
    return ScriptedReply(" ".join(found) or "NO_REPLY")


def _listed(result: str) -> list[str]:
    """The names in a result of the tool `list`."""
    return [line.split()[0] for line in result.splitlines() if line and not line.startswith("[")]


def _survey(results: list[str]) -> ScriptedReply:
    if not results:
        return ScriptedReply(calls=(use("list", depth=1),))
    names = _listed(results[-1])
    folders = [name for name in names if name.endswith("/")]
    counted = f"{len(names)} entries, {len(folders)} of them folders"
    return ScriptedReply(f"In the folder: {', '.join(names[:12])}.\n\nSUMMARY: There are {counted} here.")


def _questions(request: Request, results: list[str]) -> ScriptedReply:
    steered = any(isinstance(said, UserMessage) and "*.md" in said.text for said in request.messages)
    place = {"glob": "*.md"} if steered else {}
    if not results:
        return ScriptedReply(calls=(use("grep", pattern="TODO|FIXME", limit=20, **place),))
    found = [line for line in results[-1].splitlines() if re.match(r"[^:\[]+:\d+:", line)]
    where = "the documents" if steered else "all files"
    listed = "\n".join(f"- {line[:100]}" for line in found[:5])
    return ScriptedReply(f"{listed}\n\nSUMMARY: I found {len(found)} lines marked TODO or FIXME in {where}.")


def _tidy(request: Request, results: list[str]) -> ScriptedReply:
    if not results:
        return ScriptedReply(calls=(use("list", depth=1),))
    if not any(isinstance(said, UserMessage) and said.text.startswith("APPROVED") for said in request.messages):
        return ScriptedReply(f"1. Look at files at the top.\n2. Name those that could move.\n\nSUMMARY: {PLAN}")
    names = _listed(results[-1])
    files = [name for name in names if not name.endswith("/") and not name.startswith(".")]
    return ScriptedReply(
        f"At the top: {', '.join(files[:8])}.\n\nSUMMARY: {len(files)} files at the top, none that must move."
    )


def _results(request: Request) -> list[str]:
    """The tool results since the last message to the agent that was no approval."""
    found: list[str] = []
    for message in reversed(request.messages):
        if isinstance(message, ToolMessage):
            found.insert(0, message.text)
        elif isinstance(message, UserMessage) and not message.text.startswith("APPROVED"):
            break
    return found
