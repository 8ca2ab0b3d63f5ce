"""A conversation with a tool, in twenty lines. Kill it with -9 at any moment and start it again: it goes on.

Run it against any OpenAI-compatible server:
`OPENAI_BASE_URL=http://127.0.0.1:8000/v1 .venv/bin/python tests/programs/conversation.py DIR`.
"""

import sys

import fledge


@fledge.tool(repeatable=True)
async def count_files(context: fledge.ToolContext) -> str:
    """How many files are in the workspace."""
    return f"{sum(1 for path in context.workspace.iterdir() if path.is_file())} files"


async def main(fl: fledge.Fledge) -> None:
    """Ask once, whatever happens; then wait for the answer."""
    asked = await fl.agent("How many files are here? Use count_files.", idempotency_key="the question")
    print((await fl.session("main").reply(asked.run_id)).text)


if __name__ == "__main__":
    fledge.run_sync(main, sys.argv[1], model="openai/test-model", tools=[count_files])
