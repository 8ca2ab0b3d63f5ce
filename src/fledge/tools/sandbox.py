"""The sandbox of commands: bubblewrap, with everything read-only but the workspace, and without what is hidden.

What is guarded is read-only in the workspace too. A mount keeps a name only as long as nobody renames a folder above
it: so every folder between the workspace and such a mount is bound onto itself, for what is mounted cannot be renamed.
Where something guarded is missing, an empty folder stands in for it while a command runs. And because another command
may swap a folder for a link while bubblewrap mounts, the first thing that runs inside compares what was mounted with
what was meant, and ends if they differ. What is hidden and what is guarded is said in `core.protected`.
"""

import fcntl
import os
import shutil
import subprocess
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Literal, NamedTuple

from msgspec import Struct

from fledge.confine import FOLDER_FLAGS
from fledge.core.protected import AGENTS, GUARDED_AT_HOME, GUARDED_NAMES, HIDDEN_AT_HOME, Protected, is_within
from fledge.errors import BadInput

Network = Literal["shared", "none"]

# Sockets work on a read-only mount: what listens in these (a container daemon, a bus, an agent) must not be seen.
_EMPTIED: Final = ("/tmp", "/run", "/var/run", "/var/tmp")
_KEPT_OF_RUN: Final = ("/run/systemd/resolve", "/run/current-system", "/run/opengl-driver")
SCAN_DEPTH: Final = 3
SCAN_ENTRIES: Final = 5_000
SCAN_FOUND: Final = 64
"""How far a workspace is searched for repositories and the like below its top: folders deep, entries, and finds."""
_UNSEARCHED: Final = frozenset({"node_modules", ".git", ".venv", "__pycache__"})


class Sandbox(Struct, frozen=True, kw_only=True):
    """How to run a command so that it can change only the workspace and cannot see secrets."""

    program: str
    """Where bubblewrap is."""
    network: Network = "shared"


MountKind = Literal["folder", "file", "workspace", "closed", "open", "guarded", "readable"]


class Mount(Struct, frozen=True):
    """One thing the sandbox puts at a path.

    `folder` and `file`: an empty one, in place of what is hidden. `workspace`: the workspace itself; `closed`: the
    same, but nothing can be made or renamed at its top. `open` may be changed, `guarded` and `readable` only read.
    """

    path: str
    kind: MountKind


class SandboxPlan(Struct, frozen=True):
    """What a sandbox mounts, and what of it is missing: there an empty folder must stand before it is made."""

    mounts: list[Mount]
    missing: list[str]


def bubblewrap(
    program: str, command: Sequence[str], mounts: Iterable[Mount], network: Network = "shared", cwd: str = ""
) -> list[str]:
    """The arguments that run a command with everything read-only and the mounts on top, outer ones first; it starts in
    the workspace, or further down in it.

    Refused: mounts without exactly one workspace, or with something else at its path.
    """
    ordered = sorted(mounts, key=lambda mount: (mount.path.rstrip("/").count("/"), mount.path))
    places = [mount.path for mount in ordered if mount.kind in ("workspace", "closed")]
    if len(places) != 1 or [mount.path for mount in ordered].count(places[0]) != 1:
        raise BadInput("workspace", "must be one folder that is not hidden from tools", places)
    arguments = [program, "--die-with-parent", "--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
    arguments += ["--unshare-cgroup-try", *(["--unshare-net"] if network == "none" else []), "--cap-drop", "ALL"]
    # The root as a workspace lies below /dev and /proc, which are the sandbox's own.
    floor = "--bind" if Mount("/", "workspace") in ordered else "--ro-bind"
    arguments += [floor, "/", "/", "--dev", "/dev", "--proc", "/proc"]
    for mount in ordered:
        match mount.kind:
            case _ if mount.path == "/":
                continue
            case "folder":
                arguments += ["--tmpfs", mount.path]
                if mount.path == "/run":
                    arguments += [word for path in _KEPT_OF_RUN for word in ("--ro-bind-try", path, path)]
            case "file":
                arguments += ["--ro-bind", "/dev/null", mount.path]
            case "workspace" | "open":
                arguments += ["--bind", mount.path, mount.path]
            case "closed" | "guarded" | "readable":
                arguments += ["--ro-bind", mount.path, mount.path]
    return [*arguments, "--chdir", os.path.join(places[0], cwd) if cwd else places[0], "--", *command]


def find_sandbox(program: str = "bwrap", network: Network = "shared") -> Sandbox | None:
    """A sandbox that was tried and works here, or None: not installed, or namespaces are forbidden. Takes a moment."""
    path = shutil.which(program)
    if path is None:
        return None
    trial = [Mount("/tmp", "workspace")]
    argv = bubblewrap(path, checked(["/bin/sh", "-c", ":"], trial), trial, network)
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=10, env={}, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return Sandbox(program=path, network=network) if done.returncode == 0 else None


# ---- what is mounted -------------------------------------------------------------------------------------------------


def plan_mounts(
    workspace: Path, protected: Protected, readable: Iterable[Path] = (), writable: Sequence[str] = ()
) -> SandboxPlan:
    """The workspace, and everything on this machine that must not be seen or changed beside it, by real path.

    Folders that may be read are shown where they would be hidden, except where the workspace itself is. `writable` are
    guarded places of the workspace that this command may change. Refused: one that is not guarded.
    """
    place = os.path.realpath(workspace)
    emptied = {os.path.realpath(path) for path in _EMPTIED} - {place}
    mounts: dict[str, MountKind] = {
        path: "folder" if os.path.isdir(path) else "file"
        for path in (*map(os.path.realpath, protected.hidden), *emptied)
        if os.path.lexists(path)
    }
    for path in {os.path.realpath(path) for path in readable} - {place}:
        if os.path.isdir(path):
            mounts[path] = "readable"
    guarded = _guarded(place, protected)
    for name in writable:
        if name not in guarded:
            raise BadInput("writable", f"must be one of {', '.join(guarded)}: all else may be written anyway", name)
        del guarded[name]
    for path in guarded.values():
        if os.path.lexists(path) and not _is_stand_in(path, place):
            mounts.setdefault(path, "guarded")
    covered = [path for path in mounts if is_within(path, place)]
    closed = {folder for folder in _closed(place, protected) if not any(is_within(folder, one) for one in covered)}
    missing: list[str] = []
    for path in (*guarded.values(), *map(os.path.realpath, protected.hidden)):
        gap = _gap(path, place) if is_within(path, place) else None
        if gap is None or os.path.dirname(gap) in closed or any(is_within(gap, one) for one in (*covered, *missing)):
            continue
        if os.access(os.path.dirname(gap), os.W_OK):
            mounts[gap] = "guarded"
            missing.append(gap)
    mounts |= _entries(closed, mounts)
    mounts[place] = "closed" if place in closed else "workspace"
    # What is covered or read-only as a whole stays so: nothing in it needs to be bound, or may be.
    pins = [*_below(place, protected), *(above for path in mounts for above in _between(place, path))]
    for path in pins:
        if not any(is_within(path, one) for one in (*covered, *missing)):
            mounts.setdefault(path, "open")
    return SandboxPlan([Mount(path, kind) for path, kind in mounts.items()], missing)


def _below(place: str, protected: Protected) -> list[str]:
    """Workspaces of other agents that lie in this one, by real path."""
    real = (os.path.realpath(path) for path in protected.workspaces)
    return [path for path in real if is_within(path, place) and path != place and os.path.isdir(path)]


def _guarded(place: str, protected: Protected) -> dict[str, str]:
    """What is guarded in the workspace: how it is named there, and where it really lies, there or not."""
    named = [f"{top.rstrip('/')}/{name}" for top in (place, *_below(place, protected)) for name in GUARDED_NAMES]
    named += [path for path in protected.guarded if is_within(path, place) and path != place]
    named += [*_agents(f"{place.rstrip('/')}/{AGENTS}"), *_further_down(place)]
    found = {os.path.relpath(path, place): os.path.realpath(path) for path in named}
    return {inner: path for inner, path in found.items() if inner not in protected.unguarded and is_within(path, place)}


def _agents(folder: str) -> list[str]:
    """The project's agents: their folder, or in one that holds other things as well, such as code, their files."""
    try:
        names = [] if os.path.islink(folder) else os.listdir(folder)
    except OSError:
        return []
    files = [f"{folder}/{name}" for name in names if name.endswith(".md")]
    return [folder] if files and len(files) == len(names) else files


def _further_down(place: str) -> list[str]:
    """What is guarded by its name below the top, as far as is searched: submodules, a folder of repositories."""
    found: list[str] = []
    level, budget = [place], SCAN_ENTRIES
    for depth in range(SCAN_DEPTH + 1):
        below: list[str] = []
        for folder in level:
            try:
                with os.scandir(folder) as entries:
                    for entry in entries:
                        budget -= 1
                        if budget <= 0 or len(found) >= SCAN_FOUND:
                            return found
                        if entry.name in GUARDED_NAMES and depth > 0 and not entry.is_symlink():
                            found.append(entry.path)
                        elif entry.name not in _UNSEARCHED and entry.is_dir(follow_symlinks=False):
                            below.append(entry.path)
            except OSError:
                continue
        level = below
    return found


def _closed(place: str, protected: Protected) -> set[str]:
    """Folders in which a command may change what is there, but make and rename nothing: the home folder, those in it
    that hold something protected, and a workspace in which a link stands for something guarded."""
    closed = {place} if any(os.path.islink(f"{place}/{name}") for name in GUARDED_NAMES) else set()
    home = os.path.realpath(protected.home) if protected.home else ""
    if home and is_within(home, place):
        closed.add(home)
        for name in (*HIDDEN_AT_HOME, *GUARDED_AT_HOME):
            closed.update(above for above in _between(home, os.path.realpath(f"{home}/{name}")) if os.path.isdir(above))
    return closed


def _entries(closed: set[str], mounts: Collection[str]) -> dict[str, MountKind]:
    """The closed folders, and what may be changed in them."""
    found: dict[str, MountKind] = {}
    for folder in closed:
        found[folder] = "guarded"
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                is_plain = entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False)
                if is_plain and entry.path not in mounts and entry.path not in closed:
                    found[entry.path] = "open"
    return found


def _between(place: str, path: str) -> list[str]:
    """The folders between a folder and something below it, neither included."""
    return [above for above in map(str, Path(path).parents) if is_within(above, place) and above != place]


def _gap(path: str, place: str) -> str | None:
    """The first part of a path below the workspace that is missing; None if all of it is there."""
    for part in (*reversed(_between(place, path)), path):
        if not os.path.lexists(part) or (part == path and _is_stand_in(part, place)):
            return part
    return None


def _is_stand_in(path: str, place: str) -> bool:
    """True of an empty folder at the top that stands in for something guarded, of another command or a dead process."""
    try:
        return os.path.dirname(path) == place and os.path.basename(path) in GUARDED_NAMES and not os.listdir(path)
    except OSError:
        return False


# ---- what stands in --------------------------------------------------------------------------------------------------


@contextmanager
def stand_ins(missing: Iterable[str]) -> Iterator[None]:
    """While this is open, an empty folder stands at each path. Whoever is the last to need one removes it: each holds a
    shared lock on it, which ends with its process."""
    with ExitStack() as stack:
        for path in missing:
            stack.enter_context(_stand_in(path))
        yield


@contextmanager
def _stand_in(path: str) -> Iterator[None]:
    held: int | None = None
    while held is None:
        try:
            with suppress(FileExistsError):
                os.mkdir(path)
            held = _locked(path)
        except OSError as error:
            raise BadInput("workspace", f"cannot be guarded at {path} ({error.strerror})") from None
    try:
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.rmdir(path)
        os.close(held)


def _locked(path: str) -> int | None:
    """The folder, held and locked; None if it was removed meanwhile."""
    try:
        held = os.open(path, FOLDER_FLAGS)
    except FileNotFoundError:
        return None
    with suppress(OSError):
        fcntl.flock(held, fcntl.LOCK_SH)
        found = os.stat(path, follow_symlinks=False)
        if os.path.samestat(found, os.fstat(held)):
            return held
    os.close(held)
    return None


# ---- whether it was made as it was meant -----------------------------------------------------------------------------

_CHECK: Final = """
table=
while read -r _ _ device root point options rest; do
  kind=${rest#*- }
  table="$table
$device $root $point ${options%%,*}
${kind%% *} $point
"
done < /proc/self/mountinfo
while [ "$1" != -- ]; do
  case $table in *"
$1
"*) ;; *) echo "fledge: the workspace changed while its sandbox was made; nothing was run" >&2; exit 125 ;; esac
  shift
done
shift
exec "$@"
"""


class _Host(NamedTuple):
    """One mount of the host."""

    device: str
    root: str
    point: str


def checked(command: Sequence[str], mounts: Iterable[Mount]) -> list[str]:
    """The command, to be run inside only after the mounts in the workspace were found to be what is meant.

    The kernel says of each mount which folder of which disk it shows, whatever links led there.
    """
    listed = list(mounts)
    place = next(mount.path for mount in listed if mount.kind in ("workspace", "closed"))
    host = _host_mounts()
    meant = [_meant(mount, host) for mount in listed if is_within(mount.path, place) and mount.path != "/"]
    return ["/bin/sh", "-c", _CHECK, "fledge", *meant, "--", *command]


def _meant(mount: Mount, host: Sequence[_Host]) -> str:
    if mount.kind == "folder":
        return f"tmpfs {_escaped(mount.path)}"
    source = "/dev/null" if mount.kind == "file" else mount.path
    shown = max((one for one in host if is_within(_escaped(source), one.point)), key=lambda one: len(one.point))
    below = _escaped(source)[len(shown.point.rstrip("/")) :]
    access = "rw" if mount.kind in ("workspace", "open") else "ro"
    return f"{shown.device} {shown.root.rstrip('/')}{below} {_escaped(mount.path)} {access}"


def _host_mounts() -> list[_Host]:
    """What is mounted here, the newest first: of several at one place it is the one that is seen."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").split("\n")
    except OSError:
        return [_Host("", "/", "/")]
    return [_Host(*line.split(" ")[2:5]) for line in reversed(lines) if line]


def _escaped(path: str) -> str:
    """A path as the kernel writes it there."""
    for sign in ("\\", " ", "\t", "\n"):
        path = path.replace(sign, f"\\{ord(sign):03o}")
    return path
