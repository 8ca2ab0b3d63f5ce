"""The settings reference, made from the structs: `python -m fledge.config > docs/config.md`.

A test fails when the page in the repository is not what this file makes.
"""

from fledge.config.foreign import UNUSED
from fledge.config.shape import describe

_INTRODUCTION = """# Settings

Made by `python -m fledge.config > docs/config.md` from `src/fledge/config/schema.py`; do not edit.

Settings are JSON5: comments, trailing commas and unquoted keys are fine. Everything has a default, so `{}` is a
complete file. Later layers win: defaults, the user's file, the project's `fledge.json5`, single settings given as
`key.path=value`. Objects are merged, lists and single values replaced; agents are merged by id. In a single setting an
agent is named by id or index (`agents.list.research.model=…`).

Nothing is half applied. A wrong value is refused with its full key, what would be right and what was found; an unknown
key is refused with the nearest one there is. `null` is no value: leave the key out.

A model is a name, or `{primary: "…", fallbacks: ["…"]}`. `limits: "strict"` stands for `maxConcurrent: 5` and
`maxRetained: 15`; a key set beside it wins, in whichever layer it stands. `<tool>` is a tool's name, as in
`tools.exec.approval`."""
_IGNORED = """
## Keys of OpenClaw that are ignored

A file of OpenClaw can be pasted. These keys are read over, each with a warning.
"""


def page() -> str:
    """The text of `docs/config.md`."""
    lines = [_INTRODUCTION]
    block = ""
    for one in describe():
        top = one.key.partition(".")[0]
        if top != block:
            block = top
            lines += [f"\n## {block.removesuffix('[]')}\n", "| key | default | may be | means |", "|---|---|---|---|"]
        lines.append(f"| `{one.key}` | {one.default} | {one.allowed} | {one.meaning} |")
    lines.append(_IGNORED)
    lines += [f"- {f'`{block}`' if block else 'at the top'}: {', '.join(keys)}" for block, keys in UNUSED.items()]
    return "\n".join(lines) + "\n"
