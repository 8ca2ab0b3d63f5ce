"""The built-in file tools: `read`, `write`, `edit`, `list`, `grep`. All of them work beneath the workspace, through
`confine`, and say what they left out. They are plain functions, so they run in threads and do not block the event loop.

Only `grep` is async: Python's `re` can take for ever on a pattern that a model makes up, and holds the interpreter
meanwhile. So a process of its own matches the pattern: it opens no file (it reads their contents from a pipe), has no
environment, has bounds on memory and processor time, and is killed when its time is over.
"""

import asyncio
import fnmatch
import json
import os
import re
import stat
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from fledge.confine import Confined, NoSuchFile
from fledge.core.diff import file_change
from fledge.core.file_change import FileChange
from fledge.core.images import Image, kind_of
from fledge.errors import BadInput
from fledge.own_code import PYTHON
from fledge.tools.base import Replacement, Tool, ToolContext, ToolResult, tool

MAX_FILE_BYTES: Final = 10 * 1024 * 1024
CHANGED: Final = (
    "holds something else since a person was asked, so the call would change it in another way than they saw; nothing"
    " was written: read the file, and make the call again"
)
MAX_SHOWN_CHARS: Final = 48_000
MAX_LINE_CHARS: Final = 2_000
MAX_ENTRIES: Final = 1_000
MAX_SEEN: Final = 100_000
"""Folder entries that one call looks at."""
MAX_MATCHES: Final = 200
GREP_SECONDS: Final = 10.0
_GREP_MEMORY: Final = 1 << 30
_SKIPPED: Final = frozenset({".git"})
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")

# Calls of one step run at once; of two edits of one file none may be lost. A fixed number of locks needs no clean-up.
_LOCKS: Final = tuple(threading.Lock() for _ in range(64))

PathParam = Annotated[str, Meta(description="path in the workspace")]


def _open(context: ToolContext) -> Confined:
    return Confined(context.workspace, context.protected)


def _at(context: ToolContext, path: str) -> str:
    """The path from the top of the workspace: a relative one begins in `context.cwd`."""
    return path if not context.cwd or os.path.isabs(path) else f"{context.cwd}/{path}"


def _reading(context: ToolContext, path: str) -> tuple[Confined, str]:
    """The folder to read a path through (the workspace, or another readable folder), and the path to read there."""
    for folder in context.readable:
        if path == str(folder) or path.startswith(f"{folder}/"):
            return Confined(folder), path
    return _open(context), _at(context, path)


# ---- read ------------------------------------------------------------------------------------------------------------


@tool(name="read", read_only=True)
def read(
    path: PathParam,
    context: ToolContext,
    offset: Annotated[int, Meta(ge=1, description="first line")] = 1,
    limit: Annotated[int, Meta(ge=1, description="most lines")] = 2000,
) -> str | ToolResult:
    """Read a text file, or look at an image (PNG, JPEG, GIF, WebP). Lines are numbered; the numbers and the tab after
    them are not part of the file."""
    folder, place = _reading(context, path)
    with folder as workspace:
        data, size = _bytes_of(workspace, place)
    if kind_of(data) is not None:
        return ToolResult("", images=(Image(data, os.path.basename(path)),))
    lines = _decoded(data, size, path).split("\n")
    if lines[-1] == "":
        lines.pop()
    if not lines:
        return "[the file is empty]"
    if offset > len(lines):
        raise BadInput("offset", f"must be at most {len(lines)}: the file has no more lines", offset)
    wanted = enumerate(lines[offset - 1 : offset - 1 + limit], offset)
    shown = _fitting(f"{number:6}\t{_shortened(line.removesuffix(chr(13)))}" for number, line in wanted)
    after = offset + len(shown)
    if after <= len(lines):
        shown.append(f"[lines {offset}–{after - 1} of {len(lines)}; go on with offset {after}]")
    return "\n".join(shown)


def _fitting(lines: Iterable[str]) -> list[str]:
    """The first of these lines, as many as fit into `MAX_SHOWN_CHARS`."""
    shown: list[str] = []
    room = MAX_SHOWN_CHARS
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    return shown


def _bytes_of(workspace: Confined, path: str) -> tuple[bytes, int]:
    data, size = workspace.read(path, MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise BadInput("path", f"must be a file of at most {MAX_FILE_BYTES} bytes, this one has {size}: use grep", path)
    return data, size


def _decoded(data: bytes, size: int, path: str) -> str:
    if b"\x00" in data:
        raise BadInput("path", f"must be a text file; this one is binary ({size} bytes)", path)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput("path", f"must be UTF-8; byte {error.start} of {size} is not", path) from None


def _shortened(line: str) -> str:
    if len(line) <= MAX_LINE_CHARS:
        return line
    return f"{line[:MAX_LINE_CHARS]} [cut: {len(line) - MAX_LINE_CHARS} more characters in this line]"


# ---- write and edit --------------------------------------------------------------------------------------------------


def _writes_guarded(arguments: Mapping[str, Any], context: ToolContext) -> bool:
    with _open(context) as workspace:
        return workspace.is_guarded(_at(context, arguments["path"]))


class _Rewrite(Struct, frozen=True):
    """A file as it is, and as a call wants it."""

    path: str
    before: bytes | None
    """The beginning of a file that is too large; None if there is no file."""
    size: int
    after: bytes
    own_words: bool = False
    """The call holds all of it."""
    places: int = 0
    """How many places an edit replaces."""

    def change(self, workspace: Confined) -> FileChange:
        return file_change(workspace.inner(self.path), self.before, self.size, self.after, self.own_words)


def _writing(workspace: Confined, context: ToolContext, path: str, content: str) -> _Rewrite:
    data, place = _encoded("content", content), _at(context, path)
    before, size = None, 0
    with suppress(NoSuchFile):
        before, size = workspace.read(place, MAX_FILE_BYTES + 1)
    return _Rewrite(place, before, size, data, own_words=True)


def _write_change(arguments: Mapping[str, Any], context: ToolContext) -> FileChange:
    with _open(context) as workspace:
        return _writing(workspace, context, arguments["path"], arguments["content"]).change(workspace)


@tool(name="write", asks=_writes_guarded)
def _write(path: PathParam, content: Annotated[str, Meta(description="all of the file")], context: ToolContext) -> str:
    """Write a file, whole. What was there is replaced; folders on the way are made."""
    with _open(context) as workspace, _lock(context):
        wanted = _writing(workspace, context, path, content)
        is_new = _put(context, workspace, wanted)
    return f"{'created' if is_new else 'replaced'} {_named(path)} ({len(wanted.after)} bytes)"


write = replace(_write, changes=_write_change)


def _editing(workspace: Confined, context: ToolContext, path: str, old: str, new: str, replace_all: bool) -> _Rewrite:
    place = _at(context, path)
    before, size = _bytes_of(workspace, place)
    text = _decoded(before, size, place)
    if old not in text and "\r\n" in text:
        # `read` shows lines without their ends, so `old` may lack the \r of the file; the file keeps it.
        old, new = (words.replace("\r\n", "\n").replace("\n", "\r\n") for words in (old, new))
    count = text.count(old)
    if count == 0:
        raise BadInput("old", "must stand in the file, exactly as written, spaces and line ends included")
    if count > 1 and not replace_all:
        raise BadInput("old", f"must stand there once, not {count} times: give more of it, or set replaceAll")
    if old == new:
        raise BadInput("new", "must differ from old")
    return _Rewrite(place, before, size, _encoded("new", text.replace(old, new)), places=count)


def _edit_change(arguments: Mapping[str, Any], context: ToolContext) -> FileChange:
    with _open(context) as workspace:
        return _editing(workspace, context, **arguments).change(workspace)


@tool(name="edit", asks=_writes_guarded)
def _edit(
    path: PathParam,
    old: Annotated[str, Meta(min_length=1, description="text that stands in the file, exactly")],
    new: Annotated[str, Meta(description="text to stand there instead")],
    context: ToolContext,
    replace_all: Annotated[bool, Meta(description="every place, not just the only one")] = False,
) -> str:
    """Replace text in a file. The old text must stand there exactly once, unless every place is to be replaced."""
    with _open(context) as workspace, _lock(context):
        wanted = _editing(workspace, context, path, old, new, replace_all)
        _put(context, workspace, wanted)
    return f"replaced {wanted.places} {'place' if wanted.places == 1 else 'places'} in {_named(path)}"


edit = replace(_edit, changes=_edit_change)


def _put(context: ToolContext, workspace: Confined, wanted: _Rewrite) -> bool:
    if context.agreed and context.agreed != wanted.change(workspace).digest:
        raise BadInput("path", CHANGED, wanted.path)
    is_new = workspace.replace(wanted.path, wanted.after, context.approved)
    inner = workspace.inner(wanted.path)
    if context.replaced is not None:
        context.replaced(Replacement(inner, wanted.before, wanted.size))
    if context.wrote is not None:
        context.wrote(inner, wanted.after)
    return is_new


def _encoded(field: str, text: str) -> bytes:
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise BadInput(field, "must be Unicode text, without lone surrogates") from None
    if len(data) > MAX_FILE_BYTES:
        raise BadInput(field, f"must make a file of at most {MAX_FILE_BYTES} bytes, not {len(data)}")
    return data


def _lock(context: ToolContext) -> threading.Lock:
    return _LOCKS[hash(os.path.realpath(context.workspace)) % len(_LOCKS)]


# ---- list ------------------------------------------------------------------------------------------------------------


@tool(name="list", read_only=True)
def list_folder(
    context: ToolContext,
    path: PathParam = ".",
    depth: Annotated[int, Meta(ge=1, le=10, description="how many levels of folders")] = 2,
) -> str:
    """List a folder, hidden files too: folders end in /, files have their size in bytes, links say where they point."""
    lines: list[str] = []
    missing = 0
    confined, place = _reading(context, path)
    with confined as workspace, workspace.folder(place) as folder:
        for _, _, shown, found, target in _entries(workspace, folder, depth, threading.Event()):
            if len(lines) == MAX_ENTRIES:
                missing += 1
            elif stat.S_ISDIR(found.st_mode):
                lines.append(f"{shown}/")
            elif stat.S_ISLNK(found.st_mode):
                lines.append(f"{shown} -> {_named(target)}")
            else:
                lines.append(f"{shown} ({found.st_size})" if stat.S_ISREG(found.st_mode) else f"{shown} (special)")
    if missing:
        seen = "at least " if missing + MAX_ENTRIES >= MAX_SEEN else ""
        lines.append(f"[cut: {seen}{missing} more entries; list a folder further down, or with a smaller depth]")
    return "\n".join(lines) or "[the folder is empty]"


_Entry = tuple[int, str, str, os.stat_result, str]
"""The open folder of an entry, its name there, its path as shown, its status, and its target if it is a link."""


def _entries(
    workspace: Confined, folder: int, depth: int, stop: threading.Event, skipped: frozenset[str] = frozenset()
) -> Iterator[_Entry]:
    """The entries below an open folder: those of each folder are sorted, and a folder stands before its contents. The
    folder of an entry stays open until the next entry is requested."""
    room = iter(range(MAX_SEEN))

    def walk(held: int, above: str, left: int) -> Iterator[_Entry]:
        names: list[str] = []
        with os.scandir(held) as entries:
            for entry in entries:
                if stop.is_set() or next(room, None) is None:
                    break
                names.append(entry.name)
        for name in sorted(names):
            if stop.is_set():
                return
            try:
                found = os.stat(name, dir_fd=held, follow_symlinks=False)
                target = os.readlink(name, dir_fd=held) if stat.S_ISLNK(found.st_mode) else ""
            except OSError:
                continue
            if workspace.is_hidden(found):
                continue
            shown = above + _named(name)
            yield held, name, shown, found, target
            if stat.S_ISDIR(found.st_mode) and left > 1 and name not in skipped:
                with workspace.below(held, name) as inner:
                    if inner is not None:
                        yield from walk(inner, f"{shown}/", left - 1)

    yield from walk(folder, "", depth)


def _named(name: str) -> str:
    """A name on one line: control characters are escaped, so that no name can look like two files or like a note of
    ours."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], name)


# ---- grep ------------------------------------------------------------------------------------------------------------


def grep_tool(seconds: float = GREP_SECONDS) -> Tool:
    """The tool `grep`, whose searches end after so many seconds."""

    @tool(name="grep", read_only=True, timeout=seconds + 30)
    async def grep(
        pattern: Annotated[str, Meta(min_length=1, max_length=2000, description="Python regular expression, per line")],
        context: ToolContext,
        path: Annotated[str, Meta(description="folder or file in the workspace")] = ".",
        glob: Annotated[str, Meta(max_length=200, description="only such files: *.py, src/**/*.ts")] | None = None,
        fixed: Annotated[bool, Meta(description="the pattern is plain text")] = False,
        ignore_case: bool = False,
        limit: Annotated[int, Meta(ge=1, le=MAX_MATCHES, description="most matches")] = MAX_MATCHES,
    ) -> str:
        """Find lines in files of the workspace, hidden ones too (not in .git): path, line number, line."""
        order = {"pattern": re.escape(pattern) if fixed else pattern, "ignoreCase": ignore_case, "limit": limit}
        wanted = None if glob is None else _globs(glob)
        folder, place = _reading(context, path)
        with folder as workspace:
            out, skipped = await _search(workspace, place, wanted, order, seconds)
        return _found(out, skipped)

    return grep


async def _search(
    workspace: Confined, path: str, wanted: re.Pattern[str] | None, order: dict[str, object], seconds: float
) -> tuple[bytes, int]:
    """The worker's output, and the number of files that it was not given. Afterwards worker and feeder have ended."""
    fed, feed = os.pipe()
    try:
        worker = await asyncio.create_subprocess_exec(
            *(PYTHON, "-I", "-S", "-c", _WORKER),
            stdin=fed,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={},
            start_new_session=True,
        )
    except BaseException:
        os.close(feed)
        raise
    finally:
        os.close(fed)
    stop = threading.Event()
    header = json.dumps(order | {"seconds": int(seconds) + 1}).encode() + b"\n"
    feeding = asyncio.ensure_future(asyncio.to_thread(_feed, workspace, path, wanted, feed, header, stop))
    try:
        async with asyncio.timeout(seconds):
            out, _ = await worker.communicate()
    except TimeoutError:
        raise BadInput(
            "pattern", f"took longer than {seconds:g} s: narrow path or glob, and avoid nested repeats such as (a+)+"
        ) from None
    finally:
        stop.set()
        if worker.returncode is None:
            worker.kill()
        # With the worker gone the feeder's pipe is broken: it is over in a moment, and closes its end.
        feeding.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(asyncio.wait({feeding, asyncio.ensure_future(worker.wait())}))
    return out, feeding.result()


def _found(out: bytes, skipped: int) -> str:
    try:
        told = json.loads(out)
    except ValueError:
        raise BadInput("pattern", "took more memory or time than a search may have") from None
    if "wrong" in told:
        raise BadInput("pattern", f"must be a regular expression ({told['wrong']}); or set fixed")
    lines = _fitting(told["lines"])
    if told["more"] or len(lines) < len(told["lines"]):
        lines.append(f"[cut after {len(lines)} matches; there are more: narrow path, glob or pattern]")
    if not lines:
        lines.append("[no match]")
    if skipped:
        lines.append(f"[not searched: {skipped} files that are too large or cannot be read]")
    return "\n".join(lines)


def _globs(glob: str) -> re.Pattern[str]:
    # A glob without / is about names; `**/` also stands for no folder at all.
    forms = [glob, glob.replace("**/", "")]
    if "/" not in glob:
        forms.append(f"*/{glob}")
    return re.compile("|".join(fnmatch.translate(form.removeprefix("./")) for form in forms))


def _feed(
    workspace: Confined, path: str, wanted: re.Pattern[str] | None, feed: int, header: bytes, stop: threading.Event
) -> int:
    """Write the files to the worker: name, length, bytes. Returned: how many could not be searched."""
    skipped = 0
    with os.fdopen(feed, "wb") as out:
        try:
            out.write(header)
            for shown, data in _contents(workspace, path, wanted, stop):
                if data is None or len(data) > MAX_FILE_BYTES:
                    skipped += 1
                elif b"\x00" not in data[:8192]:
                    out.write(b"%s\n%d\n" % (shown.encode(), len(data)))
                    out.write(data)
            out.flush()
        except BrokenPipeError:
            # The worker has found enough, or was killed.
            _discard(out.fileno())
    return skipped


def _contents(
    workspace: Confined, path: str, wanted: re.Pattern[str] | None, stop: threading.Event
) -> Iterator[tuple[str, bytes | None]]:
    """The file at a path, or the wanted files below it: the shown path, and the content; None if it cannot be read."""
    try:
        data, _ = workspace.read(path, MAX_FILE_BYTES + 1)
    except BadInput:
        with workspace.folder(path) as top:
            for folder, name, shown, found, _ in _entries(workspace, top, 64, stop, _SKIPPED):
                if stat.S_ISREG(found.st_mode) and (wanted is None or wanted.match(shown)):
                    yield shown, workspace.content_in(folder, name, MAX_FILE_BYTES + 1)
    else:
        yield _named(path), data


def _discard(descriptor: int) -> None:
    # Closing the file writes the rest of its buffer: into nothing, then.
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


_WORKER: Final = f"""
import json, re, resource, sys
given = sys.stdin.buffer
order = json.loads(given.readline())
resource.setrlimit(resource.RLIMIT_CPU, (order["seconds"], order["seconds"] + 1))
resource.setrlimit(resource.RLIMIT_AS, ({_GREP_MEMORY}, {_GREP_MEMORY}))
def tell(**told):
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    sys.exit()
try:
    found = re.compile(order["pattern"], re.IGNORECASE if order["ignoreCase"] else 0).search
except (re.error, RecursionError, OverflowError) as error:
    tell(wrong=str(error)[:200])
lines = []
while name := given.readline():
    text = given.read(int(given.readline())).decode("utf-8", "replace")
    for number, line in enumerate(text.split("\\n"), 1):
        line = line.rstrip("\\r")
        if found(line):
            if len(lines) == order["limit"]:
                tell(lines=lines, more=True)
            shown = line if len(line) <= 300 else line[:300] + " [cut]"
            lines.append(name.decode().rstrip("\\n") + ":" + str(number) + ": " + shown)
tell(lines=lines, more=False)
"""


def file_tools() -> tuple[Tool, ...]:
    """All of them."""
    return read, write, edit, list_folder, grep_tool()
