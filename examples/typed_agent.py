"""An agent with instructions, a tool of its own, and answers of one type.

    python examples/typed_agent.py [MODEL]

Without the name of a model, such as openai/gpt-5, a script stands in for one.
"""

import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import fledge
from fledge.testing import ScriptedModel, in_order, last_text, use


@dataclass
class Review:
    """What the reviewer answers."""

    lines: int
    verdict: str


@fledge.tool(read_only=True)
def count_lines(path: str, ctx: fledge.ToolContext) -> int:
    """Count the lines of a file.

    Args:
        path: where the file is in the workspace
    """
    return len((ctx.workspace / Path(path).name).read_text().splitlines())


reviewer = fledge.Agent(
    "reviewer",
    instructions="You review code. Count before you judge.",
    tools=[count_lines],
    output_type=Review,
    limits=fledge.Budget(turns=5),
)


script = in_order(
    use("count_lines", path="hello.py"),
    lambda request: f'{{"lines": {last_text(request)}, "verdict": "short enough"}}',
)
"""What a model might do: use the tool, then answer in JSON."""


async def main(fl: fledge.Fledge) -> None:
    """Ask for a review. Its answer is a `Review`, or an error says why not."""
    run = await fl.spawn("Review hello.py", agent=reviewer)
    review = (await run).value
    print(f"{review.lines} lines: {review.verdict}")


if __name__ == "__main__":
    model = sys.argv[1] if len(sys.argv) > 1 else ScriptedModel(script)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "hello.py").write_text("import sys\n\nprint('hello', sys.argv)\n")
        fledge.run_sync(main, f"{folder}/state", model=model, agents=[reviewer], workspace=folder)
