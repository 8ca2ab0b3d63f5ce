"""A tool that asks a person before each call. The call waits, also over a restart, until somebody answers.

    python examples/approval.py [MODEL]

Without the name of a model, such as openai/gpt-5, a script stands in for one, and rules for the person.
"""

import asyncio
import sys
import tempfile

import fledge
from fledge.testing import Reply, Request, ScriptedModel, ToolMessage, last_text, use


@fledge.tool(approval="ask")
async def deploy(target: str) -> str:
    """Deploy the current version.

    Args:
        target: where to, `staging` or `production`
    """
    return f"deployed to {target}"


operator = fledge.Agent("operator", instructions="You deploy what you are told to.", tools=[deploy])


def script(request: Request) -> Reply | str:
    """What a model might do: deploy, and say what came of it."""
    last = request.messages[-1]
    if isinstance(last, ToolMessage):
        return f"Result: {last.text}"
    return Reply(calls=(use("deploy", target=last_text(request).split()[-1]),))


async def decide(question: fledge.Question) -> bool:
    """Ask the person at the terminal; without one, allow what is not production."""
    if not sys.stdin.isatty():
        print(f"? {question.tool} {question.arguments}")
        return "production" not in question.arguments
    answer = await asyncio.to_thread(input, f"{question.tool} {question.arguments}? [y/n] ")
    return answer.strip() == "y"


async def main(fl: fledge.Fledge) -> None:
    """Two deployments: each call is answered by a person before it is run."""
    fl.on_approval(decide)
    for target in ("staging", "production"):
        run = await fl.spawn(f"Deploy to {target}", agent=operator)
        print((await run).text)


if __name__ == "__main__":
    model = sys.argv[1] if len(sys.argv) > 1 else ScriptedModel(script)
    with tempfile.TemporaryDirectory() as folder:
        fledge.run_sync(main, folder, model=model, agents=[operator])
