"""A program that runs fledge out of its workspace and reports what it ran and imported from the first tool call on.

    WORKSPACE/.venv/bin/python driver.py WORKSPACE STATE command|program < CALLS

It makes the calls of a model, one after the other, then runs every import statement that fledge has inside a function,
as late as that can be, and asks for modules that are installed nowhere. A person refuses all that they are asked. As
`command` the process does what that of `fledge` does. It prints JSON: the results of the calls, the programs that were
started, the code files that were opened, the modules that were loaded from files, and `sys.path` at the end.
"""

import ast
import asyncio
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import fledge
from fledge.core.keys import main_key
from fledge.models.base import AssistantMessage, Request
from fledge.models.scripted import Answer, ScriptedModel, use
from fledge.own_code import run_only_fledge
from fledge.workspaces.git import git

STARTS = {"subprocess.Popen": 0, "os.posix_spawn": 0, "os.exec": 0, "ctypes.dlopen": 0}
"""Audit events of a start of foreign code, and the place of the program among their arguments."""
CODE = (".py", ".pyc", ".so", ".pth", ".cfg")


class Watch:
    """What this process does, as the interpreter tells it."""

    def __init__(self) -> None:
        self.is_on = False
        self.started: set[str] = set()
        self.read: set[str] = set()

    def hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_on:
            return
        if event in STARTS and arguments[STARTS[event]] is not None:
            self.started.add(os.fsdecode(arguments[STARTS[event]]))
        elif event == "import" and arguments[1]:
            self.read.add(str(arguments[1]))
        elif event == "open" and isinstance(arguments[0], str) and arguments[0].endswith(CODE):
            self.read.add(arguments[0])


async def talk(workspace: Path, state: Path, calls: list[tuple[str, dict[str, Any]]]) -> list[str]:
    """The results of the model's calls."""

    def script(request: Request) -> Answer:
        made = sum(isinstance(message, AssistantMessage) for message in request.messages)
        watch.is_on = True
        return use(calls[made][0], **calls[made][1]) if made < len(calls) else "done"

    opened = fledge.open(state, model=ScriptedModel(script), workspace=workspace)
    async with opened as fl:
        fl.on_approval(lambda _: False)
        await fl.session("main").send("go")
        bodies = await fl.engine.store.read(
            lambda tx: [one.body for one in tx.transcripts.entries(main_key()) if one.kind == "tool"]
        )
        return [json.loads(body)["text"] for body in bodies]


def import_late() -> list[str]:
    """Run each import inside a function of fledge, as its module would; returns those that failed."""
    failed = []
    for path in sorted(Path(fledge.__file__).parent.rglob("*.py")):
        late = ModuleType("fledge.late")
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for inner in ast.walk(node):
                    if isinstance(inner, ast.Import | ast.ImportFrom):
                        try:
                            exec(compile(ast.Module([inner], []), str(path), "exec"), vars(late))
                        except ImportError as error:
                            failed.append(str(error.name))
    # What a package that fledge needs tries to import, such as a faster codec, and a part of Python of another system.
    for name in ("brotli", "uvloop", "winreg"):
        try:
            exec(f"import {name}", {"__name__": "aiohttp.compression_utils"})
        except ImportError:
            failed.append(name)
    return failed


def main() -> None:
    workspace, state = Path(sys.argv[1]), Path(sys.argv[2])
    if sys.argv[3] == "command":
        run_only_fledge()
    results = asyncio.run(talk(workspace, state, json.load(sys.stdin)))
    git(workspace, "--version")
    failed = import_late()
    watch.is_on = False
    files = {name: str(getattr(module, "__file__", "")) for name, module in list(sys.modules.items())}
    json.dump(
        {
            "results": results,
            "failed": failed,
            "started": sorted(watch.started),
            "read": sorted(watch.read),
            "imported": files,
            "path": sys.path,
        },
        sys.stdout,
    )


watch = Watch()

if __name__ == "__main__":
    sys.addaudithook(watch.hear)
    main()
