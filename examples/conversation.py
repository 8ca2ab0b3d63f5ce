"""A conversation with a tool, in twenty lines. Kill it with -9 at any moment and start it again: it goes on.

Run it against any OpenAI-compatible server:
`OPENAI_BASE_URL=http://127.0.0.1:8000/v1 .venv/bin/python examples/conversation.py DIR`.
"""

import asyncio
import sys
from pathlib import Path

import fledge
from fledge.cli.run import Request, converse
from fledge.tools.base import ToolContext


@fledge.tool(repeatable=True)
async def count_files(context: ToolContext) -> str:
    """How many files are in the workspace."""
    return f"{sum(1 for path in context.workspace.iterdir() if path.is_file())} files"


if __name__ == "__main__":
    state = Path(sys.argv[1])
    prompt = None if (state / "fledge.db").exists() else "How many files are here? Use count_files."
    sys.exit(asyncio.run(converse(Request(state, prompt, "openai/test-model"), tools=[count_files])))
