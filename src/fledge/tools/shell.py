"""The tool `exec` (alias `bash`): a shell command in the workspace, bounded in time and output, gone when it is over.

`process` runs and kills it. Where bubblewrap works it runs in a `sandbox`; without one it can do all that the user of
this program can do (`docs/security.md`). This file does not know who may call it, nor which calls a person must approve
by the settings.
"""

import errno
import os
import re
import shutil
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Annotated, Any, Final

from msgspec import Meta
from msgspec.structs import replace

from fledge.core.protected import GUARDED_NAMES
from fledge.core.redact import error_words
from fledge.errors import BadInput
from fledge.tools.base import Tool, ToolContext, ToolResult, tool
from fledge.tools.process import run
from fledge.tools.sandbox import Sandbox, bubblewrap, checked, plan_mounts, stand_ins

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
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
    " `writable`, and a person is asked first."
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
        argv = [shutil.which("bash", path=DEFAULT_PATH) or "/bin/sh", "-c", command]
        missing: list[str] = []
        here = context.workspace / context.cwd
        if sandbox is not None:
            if writable and not context.approved:
                raise BadInput("writable", "needs a person's approval, and no person was asked")
            plan = plan_mounts(context.workspace, context.protected, context.readable, writable)
            argv = bubblewrap(sandbox.program, checked(argv, plan.mounts), plan.mounts, sandbox.network, context.cwd)
            here, missing = Path("/"), plan.missing
        try:
            with stand_ins(missing):
                ended = await run(argv, here, {"PATH": DEFAULT_PATH, **context.env}, timeout_seconds)
        except (OSError, ValueError) as error:
            raise BadInput("command", f"could not be started ({error_words(error)})") from None
        hint = f"\n[{READ_ONLY}]" if sandbox is not None and ended.code and _EROFS in ended.output else ""
        end = "" if not ended.output or ended.output.endswith("\n") else "\n"
        return ToolResult(f"{ended.output}{end}[{ended.said}]{hint}", is_error=ended.code != 0)

    return replace(exec_, commands=_command)


def _command(arguments: Mapping[str, Any]) -> str:
    """The command; empty if it wants to write read-only places: a person must approve that in any case."""
    return "" if arguments["writable"] else str(arguments["command"])
