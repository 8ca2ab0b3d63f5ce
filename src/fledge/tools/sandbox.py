"""The sandbox of commands: bubblewrap, with everything read-only but the workspace, and without the hidden paths.

Guarded paths are read-only in the workspace too. A mount keeps its path only until a folder above it is renamed: so
every folder between the workspace and such a mount is bound onto itself, because a mount point cannot be renamed. Where
a guarded path is missing, an empty folder stands in for it while a command runs. And because another command may swap a
folder for a link while bubblewrap mounts, the first program inside compares the mounts with the planned ones, and ends
if they differ. `core.protected` defines hidden and guarded paths.
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

# Sockets work on a read-only mount: those in here (of a container daemon, a bus, an agent) must not be seen.
_EMPTIED: Final = ("/tmp", "/run", "/var/run", "/var/tmp")
# The kernel's settings: most may be written by uid 0 even without capabilities, some by every user of a user namespace.
_KERNEL: Final = (
    *("/sys", "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi"),
    *("/proc/driver", "/proc/mtrr", "/proc/pressure"),
)
_KEPT_OF_RUN: Final = ("/run/systemd/resolve", "/run/current-system", "/run/opengl-driver")
SCAN_DEPTH: Final = 3
SCAN_ENTRIES: Final = 5_000
SCAN_FOUND: Final = 64
"""Limits of the search for repositories and the like below the top of a workspace: depth, entries, and finds."""
_UNSEARCHED: Final = frozenset({"node_modules", ".git", ".venv", "__pycache__"})


class Sandbox(Struct, frozen=True, kw_only=True):
    """How to run a command so that it can change only the workspace and cannot see secrets."""

    program: str
    """The path of bubblewrap."""
    network: Network = "shared"


MountKind = Literal["folder", "file", "workspace", "closed", "open", "guarded", "readable"]


class Mount(Struct, frozen=True):
    """A mount of the sandbox.

    `folder` and `file`: an empty one, in place of a hidden path. `workspace`: the workspace itself; `closed`: the same,
    but no entry can be made or renamed at its top. `open` paths may be changed, `guarded` and `readable` ones only
    read.
    """

    path: str
    kind: MountKind


class SandboxPlan(Struct, frozen=True):
    """The mounts of a sandbox, and the paths of those that are missing: an empty folder must stand there beforehand."""

    mounts: list[Mount]
    missing: list[str]


def bubblewrap(
    program: str, command: Sequence[str], mounts: Iterable[Mount], network: Network = "shared", cwd: str = ""
) -> list[str]:
    """The command line that runs a command with everything read-only and the mounts on top, outer ones first; the
    command starts in the workspace, or in its subfolder `cwd`.

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
    arguments += [word for path in _KERNEL for word in ("--ro-bind-try", path, path)]
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


# ---- the mounts ------------------------------------------------------------------------------------------------------


def plan_mounts(
    workspace: Path, protected: Protected, readable: Iterable[Path] = (), writable: Sequence[str] = ()
) -> SandboxPlan:
    """The mounts for a workspace, and for all that must not be seen or changed on this machine besides, by real path.

    `readable` folders are shown even where they would be hidden, except at the place of the workspace itself.
    `writable` names guarded places of the workspace that this command may change. Refused: a place that is not guarded.
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
    # A path that is covered, or read-only as a whole, stays so: nothing below it needs to be bound, or may be.
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
    """The guarded places of the workspace: their names there, and their real paths, also where nothing exists yet."""
    named = [f"{top.rstrip('/')}/{name}" for top in (place, *_below(place, protected)) for name in GUARDED_NAMES]
    named += [path for path in protected.guarded if is_within(path, place) and path != place]
    named += [*_agents(f"{place.rstrip('/')}/{AGENTS}"), *_further_down(place)]
    found = {os.path.relpath(path, place): os.path.realpath(path) for path in named}
    return {inner: path for inner, path in found.items() if inner not in protected.unguarded and is_within(path, place)}


def _agents(folder: str) -> list[str]:
    """The project's agents: their folder, or only their files if it holds other things as well, such as code."""
    try:
        names = [] if os.path.islink(folder) else os.listdir(folder)
    except OSError:
        return []
    files = [f"{folder}/{name}" for name in names if name.endswith(".md")]
    return [folder] if files and len(files) == len(names) else files


def _further_down(place: str) -> list[str]:
    """Paths with guarded names below the top, as far as is searched: of submodules, of a folder of repositories."""
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
    """Folders in which a command may change the entries that exist, but can make and rename none: the home folder,
    folders in it that hold a protected path, and a workspace in which a link has a guarded name."""
    closed = {place} if any(os.path.islink(f"{place}/{name}") for name in GUARDED_NAMES) else set()
    home = os.path.realpath(protected.home) if protected.home else ""
    if is_within(home, place) and os.path.isdir(home):
        closed.add(home)
        for name in (*HIDDEN_AT_HOME, *GUARDED_AT_HOME):
            closed.update(above for above in _between(home, os.path.realpath(f"{home}/{name}")) if os.path.isdir(above))
    return closed


def _entries(closed: set[str], mounts: Collection[str]) -> dict[str, MountKind]:
    """Mounts for the closed folders, and for the entries that may be changed in them."""
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
    """True of an empty folder with a guarded name at the top: a stand-in of another command or of a dead process."""
    try:
        return os.path.dirname(path) == place and os.path.basename(path) in GUARDED_NAMES and not os.listdir(path)
    except OSError:
        return False


# ---- stand-ins -------------------------------------------------------------------------------------------------------


@contextmanager
def stand_ins(missing: Iterable[str]) -> Iterator[None]:
    """While this is open, an empty folder stands at each path. The last user of a folder removes it: each holds a
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


# ---- the check of the mounts -----------------------------------------------------------------------------------------

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
    """The command, wrapped: inside the sandbox it runs only after the mounts in the workspace were found as planned.

    The kernel's list names for each mount the folder and the disk that it shows, whatever links led there.
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
    """The mounts of the host, the newest first: of several at one path only the newest is visible."""
    try:
        lines = Path("/proc/self/mountinfo").read_text("utf-8", "surrogateescape").split("\n")
    except OSError:
        return [_Host("", "/", "/")]
    return [_Host(*line.split(" ")[2:5]) for line in reversed(lines) if line]


def _escaped(path: str) -> str:
    """A path as the kernel writes it in its list of mounts."""
    for sign in ("\\", " ", "\t", "\n"):
        path = path.replace(sign, f"\\{ord(sign):03o}")
    return path
