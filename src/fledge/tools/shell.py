"""The tool `exec` (alias `bash`): a shell command in the workspace, bounded in time and output, gone when it is over.

`process` runs and kills it. Where bubblewrap works it runs in a `sandbox`; without one it can do all that the user of
this program can do (`docs/security.md`). This file does not know who may call it, nor which calls a person must approve
by the settings.
"""

import asyncio
import errno
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import replace

from fledge.confine import RUNS_FROM
from fledge.core.protected import GUARDED_NAMES, is_within
from fledge.core.redact import error_words
from fledge.errors import BadInput
from fledge.own_code import SYSTEM_PATH, program
from fledge.tools.base import Tool, ToolContext, ToolResult, tool
from fledge.tools.process import ProcessEnded, run
from fledge.tools.sandbox import Sandbox, SandboxStatus, bubblewrap, checked, ended, plan_mounts
from fledge.tools.set_aside import SetAside, WatchedPaths, settle_dead, watch

_EROFS: Final = os.strerror(errno.EROFS)

# ---- the environment -------------------------------------------------------------------------------------------------

_KNOWN: Final = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_[A-Z]+|TERM|COLORTERM|NO_COLOR|FORCE_COLOR|TZ|TMPDIR|PWD|COLUMNS|LINES"
    r"|EDITOR|VISUAL|PAGER|CI|(HTTP|HTTPS|ALL|NO|FTP)_PROXY|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL|NODE_EXTRA)_CA_(BUNDLE|CERTS)"
    r"|GIT_(AUTHOR|COMMITTER)_(NAME|EMAIL|DATE)|XDG_(CONFIG|DATA|CACHE|STATE)_HOME|VIRTUAL_ENV|CONDA_(PREFIX|DEFAULT_ENV)"
    r"|PYTHON(PATH|HOME|UNBUFFERED|DONTWRITEBYTECODE|WARNINGS)|JAVA_HOME|GOPATH|GOROOT|GOCACHE|CARGO_HOME|RUSTUP_HOME"
    r"|NVM_DIR|NODE_(PATH|ENV|OPTIONS)|PYENV_ROOT|RBENV_ROOT|GEM_HOME|SOURCE_DATE_EPOCH"
)
"""The environment variables that a command gets; others only if the user names them (`tools.exec.env`)."""
_SECRET_VALUE: Final = re.compile(
    r"://[^/?#\s]*:[^/?#\s]*@"  # an address with a password in it
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(sk-|sk_live_|rk_live_|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|hf_)[\w-]{12}"
    r"|\beyJ[\w-]{10,}\.[\w-]{10,}\."  # a signed token
)


def environment(base: Mapping[str, str], named: Collection[str] = ()) -> dict[str, str]:
    """The variables of an environment that a child process gets: those that every program needs, unless the value looks
    like a secret, and those that the user named."""
    return {
        name: value
        for name, value in base.items()
        if name in named or (_KNOWN.fullmatch(name.upper()) and not _SECRET_VALUE.search(value))
    }


# ---- the tool --------------------------------------------------------------------------------------------------------

READ_ONLY: Final = (
    f"{', '.join(GUARDED_NAMES)} and start-up files are read-only: name the one that a command must write in"
    " `writable`, and a person is asked first. One that a command makes anew is set aside when it ends."
)
_ATTEMPTS: Final = 3
"""How often a sandbox is tried whose mounts cannot be made: a file may vanish between the plan and its mount."""

LINKED: Final = (
    "in {} no entry can be made or renamed by a command: a link there leads to what fledge itself runs from; install"
    " fledge outside the workspace (pipx install fledge), or use write"
)


def exec_tool(sandbox: Sandbox | None = None) -> Tool:
    """The tool `exec`, in this sandbox or in none."""
    walls = (
        "It can change only the workspace and /tmp, which is empty at the start of each call. "
        f"{READ_ONLY}{' It has no network.' if sandbox.network == 'none' else ''}"
        if sandbox
        else "It is not sandboxed."
    )

    def asks(arguments: Mapping[str, Any], context: ToolContext) -> bool:
        return sandbox is not None and bool(arguments["writable"])

    @tool(
        name="exec",
        timeout=None,
        description=f"Run a shell command in the workspace. Output and errors come back as one text, with the exit "
        f"code. There is no input, and background processes end with the command. {walls}",
        asks=asks,
    )
    async def exec_(
        command: Annotated[str, Meta(min_length=1, max_length=100_000, description="for bash -c")],
        context: ToolContext,
        timeout_seconds: Annotated[float, Meta(gt=0, le=3600, description="seconds, then it is killed")] = 120,
        writable: Annotated[tuple[str, ...], Meta(max_length=20, description="read-only places to be written")] = (),
    ) -> ToolResult:
        if "\x00" in command:
            raise BadInput("command", "must not hold NUL")
        argv = [program("bash", SYSTEM_PATH) or "/bin/sh", "-c", command]
        env = {"PATH": SYSTEM_PATH, **context.env}
        earlier: list[SetAside] = []
        moved: list[SetAside] = []
        if writable and sandbox is not None and not context.approved:
            raise BadInput("writable", "needs a person's approval, and no person was asked")
        try:
            if sandbox is None:
                over = await run(argv, context.workspace / context.cwd, env, timeout_seconds)
            else:
                earlier = await asyncio.to_thread(_settle_earlier, sandbox.aside, context.workspace)
                over, moved = await _run_sandboxed(sandbox, argv, context, env, timeout_seconds, writable)
        except (OSError, ValueError) as error:
            raise BadInput("command", f"could not be started ({error_words(error)})") from None
        hint = _hint(context) if moved or (sandbox is not None and over.code and _EROFS in over.output) else ""
        end = "" if not over.output or over.output.endswith("\n") else "\n"
        notes = "".join(f"\n[{one.words}]" for one in (*earlier, *moved))
        is_error = over.code != 0 or bool(moved)
        return ToolResult(f"{over.output}{end}[{over.said}]{notes}{hint}", is_error=is_error)

    return replace(exec_, commands=_command)


def _hint(context: ToolContext) -> str:
    """The lines about places that a sandboxed command can only read."""
    place = os.path.realpath(context.workspace)
    found = filter(os.path.lexists, context.protected.code_in(place))
    code = ", ".join(os.path.relpath(path, place) for path in found)
    linking = ", ".join(os.path.relpath(path, place) for path in context.protected.linking_in(place))
    lines = [READ_ONLY, *([f"{code}: {RUNS_FROM}"] if code else []), *([LINKED.format(linking)] if linking else [])]
    return "".join(f"\n[{line}]" for line in lines)


def _command(arguments: Mapping[str, Any]) -> str:
    """The command; empty if it wants to write read-only places: a person must approve that in any case."""
    return "" if arguments["writable"] else str(arguments["command"])


async def _run_sandboxed(
    sandbox: Sandbox,
    argv: Sequence[str],
    context: ToolContext,
    env: Mapping[str, str],
    timeout_s: float,
    writable: Sequence[str],
) -> tuple[ProcessEnded, list[SetAside]]:
    """Run a command in the sandbox: how it ended, and what it made and was set aside."""
    moved: list[SetAside] = []
    for attempt in range(1, _ATTEMPTS + 1):
        plan = await asyncio.to_thread(plan_mounts, context.workspace, context.protected, context.readable, writable)
        guarded = [mount.path for mount in plan.mounts if mount.kind == "guarded"]
        watched = watch(sandbox.aside, context.workspace, plan.missing, guarded)
        first: int | None = None
        try:
            status = SandboxStatus()
            try:
                inside = checked(argv, plan.mounts)
                words = bubblewrap(sandbox.program, inside, plan.mounts, sandbox.network, context.cwd, status.fd)
                over = await run(words, Path("/"), env, timeout_s, passed=(status.fd,))
                was_made = over.code != 1 or status.has_exit_code
            finally:
                first = status.close()
        finally:
            # The thread goes on if the call is cancelled.
            moved += await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(_settled, first, watched)))
        if was_made or attempt == _ATTEMPTS:
            break
    return over, moved


def _settle_earlier(aside: Path, workspace: Path) -> list[SetAside]:
    """Settle the commands of processes that died; answers what was set aside in this workspace."""
    place = os.path.realpath(workspace)
    return [one for one in settle_dead(aside) if is_within(one.path, place)]


def _settled(first: int | None, watched: WatchedPaths) -> list[SetAside]:
    ended(first)
    return watched.settle()
