"""A tool that asks a person before each call. The call waits until somebody answers, also over a restart.

    python examples/approval.py [MODEL]

Without the name of a model, such as openai/gpt-5, a script stands in for one. Without a terminal, a rule stands in for
the person.
"""

import asyncio
import sys
import tempfile

import fledge
from fledge.testing import ScriptedModel, in_order, last_text, use


@fledge.tool(approval="ask")
async def deploy(target: str) -> str:
    """Deploy the current version.

    Args:
        target: where to, `staging` or `production`
    """
    return f"deployed to {target}"


operator = fledge.Agent("operator", instructions="You deploy what you are told to.", tools=[deploy])


script = in_order(
    lambda request: use("deploy", target=last_text(request).split()[-1]),
    lambda request: f"Result: {last_text(request)}",
)
"""What a model might do: deploy, and say what came of it."""


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
