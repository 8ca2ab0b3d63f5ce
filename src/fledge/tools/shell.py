"""The tool `exec` (alias `bash`): a shell command in the workspace, bounded in time and output, gone when it is over.

How it is run and killed is `process`. Where bubblewrap works it runs in a
sandbox; without one it can do whatever the user of this program can do (`docs/security.md`). Who may call it, and who
is asked first, is decided elsewhere.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct

from fledge.errors import BadInput
from fledge.tools.base import Tool, ToolContext, ToolResult, tool
from fledge.tools.process import run

DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# ---- the environment -------------------------------------------------------------------------------------------------

_KEPT: Final = re.compile(r"PATH|HOME|USER|LOGNAME|SHELL|LANG|LANGUAGE|LC_\w+|TERM|TZ|TMPDIR|PWD|COLUMNS|LINES")
_SECRET_NAME: Final = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|PASS$|PWD$|CREDENTIAL|AUTH(?!OR)|COOKIE|PRIVATE|SIGNING|WEBHOOK|DSN$|CONNECTION_?STR"
    r"|NETRC|PGPASSFILE|KUBECONFIG|DATABASE_URL|DBUS_|GPG_AGENT|DOCKER_(HOST|CONFIG)"
    r"|^(AWS|AZURE|ARM|GOOGLE|GCP|GCLOUD|CLOUDSDK|OPENAI|ANTHROPIC|GITHUB|GITLAB|FLEDGE|VAULT|DOPPLER|OP)_"
)
_SECRET_VALUE: Final = re.compile(
    r"://[^/?#\s]*:[^/?#\s]*@"  # an address with a password in it
    r"|-----BEGIN [A-Z ]*PRIVATE KEY"
    r"|\b(sk-|sk_live_|rk_live_|ghp_|gho_|ghs_|ghu_|github_pat_|glpat-|xox[abprs]-|AKIA|ASIA|AIza|hf_)[\w-]{12}"
    r"|\beyJ[\w-]{10,}\.[\w-]{10,}\."  # a signed token
)


def environment(base: Mapping[str, str]) -> dict[str, str]:
    """What a child process may know of an environment: everything whose name or value does not look like a secret."""
    return {name: value for name, value in base.items() if _is_harmless(name, value)}


def _is_harmless(name: str, value: str) -> bool:
    if _KEPT.fullmatch(name):
        return True
    return not _SECRET_NAME.search(name.upper()) and not _SECRET_VALUE.search(value)


# ---- the sandbox -----------------------------------------------------------------------------------------------------

Network = Literal["shared", "none"]

_SECRETS_AT_HOME: Final = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/hub"),
    *(".config/fledge", ".fledge", ".netrc", ".git-credentials", ".config/git/credentials", ".npmrc", ".yarnrc.yml"),
    *(".pypirc", ".pgpass", ".my.cnf", ".vault-token", ".terraform.d", ".password-store", ".local/share/keyrings"),
    *(".cargo/credentials", ".cargo/credentials.toml", ".gem/credentials", ".config/op", ".config/rclone"),
    *(".bash_history", ".zsh_history", ".python_history", ".psql_history", ".node_repl_history", ".mozilla"),
    *(".config/google-chrome", ".config/chromium", ".claude", ".claude.json", ".codex", ".openclaw", ".config/openai"),
)
# Sockets work on a read-only mount: what listens in these (a container daemon, a bus, an agent) must not be seen.
_EMPTIED: Final = ("/tmp", "/run", "/var/run", "/var/tmp")
_KEPT_OF_RUN: Final = ("/run/systemd/resolve", "/run/current-system", "/run/opengl-driver")


class Sandbox(Struct, frozen=True, kw_only=True):
    """How to run a command so that it can change only the workspace and cannot see secrets."""

    program: str
    """Where bubblewrap is."""
    home: Path
    network: Network = "shared"
    hidden: tuple[Path, ...] = ()
    """What must not be seen besides the secrets at home: files that hold keys."""


class Mount(Struct, frozen=True):
    """One thing the sandbox puts at a path: an empty folder, an empty file, the workspace itself, or a folder that may
    only be read."""

    path: str
    kind: Literal["folder", "file", "workspace", "readable"]


def bubblewrap(
    program: str, command: Sequence[str], mounts: Iterable[Mount], network: Network = "shared", cwd: str = ""
) -> list[str]:
    """The arguments that run a command with everything read-only and the mounts on top, outer ones first; it starts in
    the workspace, or further down in it.

    Refused: mounts without exactly one workspace, or with something else at its path.
    """
    ordered = sorted(mounts, key=lambda mount: (mount.path.rstrip("/").count("/"), mount.path))
    places = [mount.path for mount in ordered if mount.kind == "workspace"]
    if len(places) != 1 or [mount.path for mount in ordered].count(places[0]) != 1:
        raise BadInput("workspace", "must be one folder that is not hidden from tools", places)
    arguments = [program, "--die-with-parent", "--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", *(["--unshare-net"] if network == "none" else []), "--cap-drop", "ALL"]
    arguments += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for mount in ordered:
        match mount.kind:
            case "folder":
                arguments += ["--tmpfs", mount.path]
                if mount.path == "/run":
                    arguments += [word for path in _KEPT_OF_RUN for word in ("--ro-bind-try", path, path)]
            case "file":
                arguments += ["--ro-bind", "/dev/null", mount.path]
            case "workspace":
                arguments += ["--bind", mount.path, mount.path]
            case "readable":
                arguments += ["--ro-bind", mount.path, mount.path]
    return [*arguments, "--chdir", os.path.join(places[0], cwd) if cwd else places[0], "--", *command]


def mounts_for(
    workspace: Path, state: Path | None, home: Path, also: Iterable[Path] = (), readable: Iterable[Path] = ()
) -> list[Mount]:
    """The workspace, and everything on this machine that must not be seen beside it, by real path.

    Folders that may be read are shown where they would be hidden, except where the workspace itself is.
    """
    place = os.path.realpath(workspace)
    hidden = [*(str(home / name) for name in _SECRETS_AT_HOME), *map(str, also), *([str(state)] if state else [])]
    hidden += [path for path in _EMPTIED if os.path.realpath(path) != place]
    found: dict[str, Mount] = {}
    for path in hidden:
        real = os.path.realpath(path)
        if os.path.isdir(real):
            found[real] = Mount(real, "folder")
        elif os.path.lexists(real):
            found[real] = Mount(real, "file")
    for path in {os.path.realpath(path) for path in readable} - {place}:
        if os.path.isdir(path):
            found[path] = Mount(path, "readable")
    return [*found.values(), Mount(place, "workspace")]


def find_sandbox(
    home: Path, program: str = "bwrap", network: Network = "shared", hidden: tuple[Path, ...] = ()
) -> Sandbox | None:
    """A sandbox that was tried and works here, or None: not installed, or namespaces are forbidden. Takes a moment."""
    path = shutil.which(program)
    if path is None:
        return None
    trial = bubblewrap(path, ["/bin/sh", "-c", ":"], [Mount("/tmp", "workspace")], network)
    try:
        done = subprocess.run(trial, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, env={}, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Sandbox(program=path, home=home, network=network, hidden=hidden) if done.returncode == 0 else None


# ---- the tool --------------------------------------------------------------------------------------------------------


def exec_tool(sandbox: Sandbox | None = None) -> Tool:
    """The tool `exec`, in this sandbox or in none."""
    walls = (
        "It can change only the workspace and /tmp, which is empty at the start of each call."
        if sandbox
        else "It is not sandboxed."
    )

    @tool(
        name="exec",
        timeout=None,
        description=f"Run a shell command in the workspace. Output and errors come back as one text, with the exit "
        f"code. There is no input, and background processes end with the command. {walls}",
    )
    async def exec_(
        command: Annotated[str, Meta(min_length=1, max_length=100_000, description="for bash -c")],
        context: ToolContext,
        timeout_seconds: Annotated[float, Meta(gt=0, le=3600, description="seconds, then it is killed")] = 120,
    ) -> ToolResult:
        argv = [shutil.which("bash", path=DEFAULT_PATH) or "/bin/sh", "-c", command]
        if sandbox is not None:
            mounts = mounts_for(context.workspace, context.state, sandbox.home, sandbox.hidden, context.readable)
            argv = bubblewrap(sandbox.program, argv, mounts, sandbox.network, context.cwd)
        if "\x00" in command:
            raise BadInput("command", "must not hold NUL")
        try:
            here = context.workspace if sandbox is not None else context.workspace / context.cwd
            ended = await run(argv, here, {"PATH": DEFAULT_PATH, **context.env}, timeout_seconds)
        except (OSError, ValueError) as error:
            raise BadInput("command", f"could not be started ({error})") from None
        return ToolResult(f"{ended.output}{_break(ended.output)}[{ended.said}]", is_error=ended.code != 0)

    return exec_


def _break(output: str) -> str:
    return "" if not output or output.endswith("\n") else "\n"
