"""The places that this process executes and imports from, and how workspaces are kept out of them.

Tools write into workspaces, and fledge may run out of one: out of the project's `.venv`, an editable install, a folder
of `PYTHONPATH` or `PATH`. From its first tool call on, this process must run nothing that a tool may have written:

- `code_places` are guarded in every workspace (`core.protected`): the interpreter, the installation, fledge's package
  and the packages that it needs, the folders of `PATH`, and of the libraries that the system loads for it.
- Any other import folder in a workspace (a project's `src`, the current folder) gives this process nothing that fledge
  needs. The command drops it from `sys.path`. In another program's process it stays, for the program's own modules.
- Programs are found once, by `program`, outside workspaces. Python is started by its real path.

`keep_out` sets this up for a workspace, before the first tool call in it.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder, all_suffixes
from types import FrameType, ModuleType
from typing import Final

from fledge.core.protected import STARTUP_MODULES, is_within

SYSTEM_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PYTHON: Final = os.path.realpath(sys.executable)
"""This interpreter, by its real path: a link to it, as in a `.venv`, may lie in a workspace."""
PACKAGES: Final = (
    *("fledge", "aiohappyeyeballs", "aiohttp", "aiosignal", "anyio", "attr", "attrs", "click", "frozenlist", "h11"),
    *("idna", "json5", "lxml", "markdown_it", "mdurl", "msgspec", "multidict", "prompt_toolkit", "propcache"),
    *("psycopg", "psycopg_binary", "starlette", "typing_extensions", "uvicorn", "wcwidth", "websockets", "yarl"),
)
"""fledge and all packages that it needs, its extras included."""
_VARIABLES: Final = ("PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "DYLD_LIBRARY_PATH", "DYLD_INSERT_LIBRARIES")
"""Variables with places that programs and libraries come from."""
_PARTS: Final = ("bin", "lib", "lib64", "pyvenv.cfg")
"""The parts of an installation that matter where the whole of it is a workspace, as after `python -m venv .`."""
_MAX_LINKS: Final = 40
_IMPORTING: Final = frozenset({"importlib", "_frozen_importlib", "_frozen_importlib_external"})
_SHARED: Final = frozenset(map(os.path.realpath, SYSTEM_PATH.split(":")))

# ---- imports ---------------------------------------------------------------------------------------------------------


class _OwnImports(PathFinder):
    """Python's search of `sys.path`, which passes over folders of workspaces where fledge needs a module."""

    def __init__(self) -> None:
        self.workspaces: set[str] = set()
        self.runs_only_fledge = False

    def keep_out(self, workspaces: Iterable[str]) -> None:
        new = {os.path.realpath(path) for path in workspaces}
        new = {path for path in new if not any(is_within(path, one) for one in self.workspaces)}
        if not new:
            return
        self.workspaces |= new
        found = _packages()
        sys.meta_path[:] = [self if finder is PathFinder else finder for finder in sys.meta_path]
        for name, spec in found.items():
            # A single file is not guarded together with its compiled copy, so it is imported at once.
            if spec.submodule_search_locations is None and self.gives_way(_location(spec)):
                import_module(name)
        if self.runs_only_fledge:
            sys.path[:] = self.outside()

    def find_spec(  # type: ignore[override]  # Python calls it on an instance alike
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        # A module of a package comes from the folder of its package.
        if path is not None or not self.is_needed(fullname):
            return PathFinder.find_spec(fullname, path, target)
        found = _packages().get(fullname)
        if found is not None and self.gives_way(_location(found)):
            return found
        found = PathFinder.find_spec(fullname, self.outside(), target)
        if found is None:
            # Finders of packages in development come after this one.
            found = _search(sys.meta_path[sys.meta_path.index(self) + 1 :], fullname)
            if found is not None and self.gives_way(_location(found)):
                raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return found

    def is_needed(self, name: str) -> bool:
        """True if fledge needs the module: because fledge or a package that it needs imports it, or by its name; a
        program's modules in a workspace import what they like."""
        frame: FrameType | None = sys._getframe(2)
        while frame is not None and _first(frame.f_globals.get("__name__")) in _IMPORTING:
            frame = frame.f_back
        module = {} if frame is None else frame.f_globals
        importer = _first(module.get("__name__"))
        if importer in PACKAGES:
            return True
        is_programs = importer == "__main__" or self.gives_way(str(module.get("__file__", "/")))
        return not is_programs and (name in sys.stdlib_module_names or name in PACKAGES)

    def outside(self) -> list[str]:
        """The import folders in which no tool may write unasked."""
        return [entry for entry in sys.path if not self.gives_way(entry)]

    def gives_way(self, path: str) -> bool:
        """True of an import folder in a workspace, unless it is an installation, and of all that lies in one."""
        real = os.path.realpath(path)
        return self.holds(real) and not any(is_within(real, one) for one in _installed())

    def holds(self, real: str) -> bool:
        return any(is_within(real, one) for one in self.workspaces)


_imports: Final = _OwnImports()


def keep_out(workspaces: Iterable[str]) -> None:
    """From now on this process imports nothing that fledge needs from folders of these workspaces where tools write."""
    _imports.keep_out(workspaces)


def run_only_fledge() -> None:
    """This process belongs to the command `fledge`: no module from a workspace is wanted in it."""
    _imports.runs_only_fledge = True


@cache
def _given_path() -> tuple[str, ...]:
    """The import folders with which this process began."""
    return tuple(sys.path)


@cache
def _installed() -> tuple[str, ...]:
    """The folders of the standard library and of installed packages, by real path."""
    entries = [entry for entry in _given_path() if os.path.basename(entry) in ("site-packages", "dist-packages")]
    return tuple(os.path.realpath(path) for path in (os.path.dirname(os.__file__), *entries))


@cache
def _packages() -> dict[str, ModuleSpec]:
    """Where each of `PACKAGES` is found before the first tool call: it is imported from there, or was already."""
    return {name: spec for name in PACKAGES if (spec := _spec_of(name)) is not None}


def _spec_of(name: str) -> ModuleSpec | None:
    if (module := sys.modules.get(name)) is not None:
        return getattr(module, "__spec__", None)
    if (found := PathFinder.find_spec(name, _imports.outside())) is not None:
        return found
    return _search(sys.meta_path, name)


def _search(finders: Iterable[object], name: str) -> ModuleSpec | None:
    ways = (getattr(one, "find_spec", None) for one in finders)
    return next((spec for find in ways if find is not None and (spec := find(name, None)) is not None), None)


def _location(spec: ModuleSpec) -> str:
    """The folder of a package, or the file of a module; `/` for what has none, such as a module of the interpreter."""
    if spec.submodule_search_locations is not None:
        return next(iter(spec.submodule_search_locations), "/")
    return (spec.origin if spec.has_location else None) or "/"


def _first(name: object) -> str:
    return str(name).partition(".")[0]


# ---- programs --------------------------------------------------------------------------------------------------------


@cache
def program(name: str, path: str) -> str | None:
    """The real path of a program that fledge starts itself, found once in a `PATH`; None if there is none."""
    for folder in folders_outside(path):
        found = os.path.realpath(os.path.join(folder, name))
        if not _is_written(os.path.dirname(found)) and os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    return None


def folders_outside(path: str) -> list[str]:
    """The folders of a `PATH` that lie in no workspace; relative ones are left out."""
    return [folder for folder in path.split(":") if os.path.isabs(folder) and not _is_written(folder)]


def _is_written(folder: str) -> bool:
    """True of a folder in a workspace, but for those of the system, which are guarded in any workspace."""
    real = os.path.realpath(folder)
    return real not in _SHARED and _imports.holds(real)


# ---- places ----------------------------------------------------------------------------------------------------------


@cache
def code_places() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The places that this process executes and imports from, by real path, and the folders with a link on the way to
    one. Looked up once, before the first tool call."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    own = {*prefixes, sys.executable, *_import_places(), *filter(None, [sys.pycache_prefix])}
    parts = {os.path.join(prefix, part) for prefix in prefixes for part in _PARTS}
    listed = ":".join([SYSTEM_PATH, *(os.environ.get(name, "") for name in _VARIABLES)])
    folders = {path for path in listed.split(":") if os.path.isabs(path)}
    programs = {PYTHON, *filter(None, (program("bwrap", os.environ.get("PATH", "")), program("git", SYSTEM_PATH)))}
    caches = {os.environ.get("UV_CACHE_DIR") or os.path.expanduser("~/.cache/uv")}
    places = {os.path.realpath(path) for path in (*own, *parts, *folders, *programs, *caches)}
    for entry in _given_path():
        starts = (name + suffix for name in STARTUP_MODULES for suffix in ("", *all_suffixes()))
        places.update(os.path.join(os.path.realpath(entry), name) for name in starts)
    return tuple(sorted(places)), tuple(sorted({folder for path in own for folder in links_to(path)}))


def holds_code(workspace: str) -> bool:
    """True of a workspace, by real path, that is itself a part of what fledge imports, such as its own package, or the
    whole installation of Python: a file at its top can change what the interpreter imports."""
    if workspace in (os.path.realpath(sys.base_prefix), os.path.realpath(sys.base_exec_prefix)):
        return True
    return any(is_within(workspace, os.path.realpath(path)) for path in _import_places())


@cache
def _import_places() -> tuple[str, ...]:
    """What this process imports from: installations, and the folder or file of each package that fledge needs."""
    found = _packages().values()
    paths = [path for spec in found for path in spec.submodule_search_locations or [_location(spec)]]
    return (*_installed(), *(path for path in paths if path != "/"))


def links_to(path: str) -> list[str]:
    """The folders, by real path, that hold a link on the way to a path: renaming in one can lead the path elsewhere."""
    found: list[str] = []
    here, left = "/", os.path.abspath(path).split("/")[::-1]
    while left and len(found) < _MAX_LINKS:
        part = left.pop()
        if part == "..":
            here = os.path.dirname(here)
        elif part not in ("", "."):
            place = os.path.join(here, part)
            if os.path.islink(place):
                found.append(here)
                target = os.readlink(place)
                here = "/" if os.path.isabs(target) else here
                left += target.split("/")[::-1]
            else:
                here = place
    return found
