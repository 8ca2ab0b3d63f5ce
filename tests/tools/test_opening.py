"""Every way in which the package opens, lists or reads a file is on this list, with the reason why it is safe.

A file of a workspace lies where agents and commands can write: whoever opens it by its name may be led elsewhere, or
wait for ever. So such files are read through `fledge.confine` alone. A new call below `src/` fails this test
until somebody has looked at it: read the file through `confine`, or add the call here with its reason.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import fledge
from tests.statements import proves

PACKAGE = Path(fledge.__file__).parent
OPENING = frozenset(
    (
        *(
            "open",
            "kept_open",
            "fdopen",
            "read_text",
            "read_bytes",
            "write_text",
            "write_bytes",
            "FileIO",
            "mmap",
            "sendfile",
        ),
        *("listdir", "scandir", "iterdir", "glob", "rglob", "walk", "fwalk", "run_path", "getlines"),
        *("copy", "copy2", "copyfile", "copytree", "move", "rmtree", "NamedTemporaryFile", "mkstemp", "mkdtemp"),
    )
)

HELD = "by a plain name in a folder that is held, never through a link"
STATE = "in the state folder, which no tool can reach"
USER = "in the user's own folder of settings, which no tool can reach"
NAMED = "a file that the user named on the command line, in a setting or in the environment"
NONE = "opens no file of the disk"
PAGES = "pages of documentation in the package itself"

LAYERS = {
    "store/": STATE,
    "gateway/": "the token and the socket in the state folder, and the page's own files",
    "models/": "keys and prices, which the user named, and the package's own catalogue",
}
"""Layers that know no workspace: nothing of theirs can be a file of one."""

REVIEWED: dict[str, dict[str, tuple[int, str]]] = {
    "client/opening.py": {"SqliteStore.open": (1, STATE), "open": (1, "fledge.open itself")},
    "cli/chat.py": {"self._screen.copy": (1, NONE + ": the clipboard of the terminal")},
    "cli/demo.py": {"SqliteStore.open": (2, STATE), "fledge.open": (1, STATE)},
    "cli/doctor.py": {"SqliteStore.open": (1, STATE), "registry.open": (1, NONE + ": a model")},
    "cli/importing.py": {"SqliteStore.open": (1, STATE)},
    "cli/main.py": {"os.open": (1, NONE + ": /dev/null")},
    "cli/opening.py": {"fledge.open": (1, STATE)},
    "cli/pages.py": {"folder().rglob": (1, PAGES), "(folder() / f'{name}.md').read_text": (1, PAGES)},
    "cli/page.py": {"webbrowser.open": (1, NONE + ": a browser, with a file of the state folder")},
    "cli/settings.py": {"path.open": (1, "made exclusively: a link that is there is not followed")},
    "cli/term/here.py": {"os.walk": (1, "names that a person completes; links are not followed, nothing is opened")},
    "cli/term/opening.py": {"os.open": (1, STATE)},
    "cli/working.py": {"fledge.open": (1, STATE)},
    "client/resting.py": {"SqliteStore.open": (1, STATE)},
    "config/permissions.py": {"kept_open": (1, USER), "os.listdir": (1, USER)},
    "config/profiles_md.py": {"os.listdir": (1, HELD)},
    "plain_file.py": {
        "open": (2, NONE + ": a descriptor that is open already"),
        "os.open": (3, "files of the user, of the state folder or that the user named; a workspace's go by confine.py"),
    },
    "openclaw.py": {"folder.glob": (1, NAMED), "path.open": (1, NAMED), "path.read_bytes": (1, NAMED)},
    "confine.py": {
        "os.open": (5, "this is the way"),
        "open": (1, NONE + ": a descriptor that is open already"),
    },
    "testing/crashes.py": {
        "mmap.mmap": (1, NONE + ": memory that processes share"),
        "report.read_text": (1, "a temporary folder of its own"),
        "report.write_text": (1, "a temporary folder of its own"),
    },
    "tools/files.py": {
        "os.fdopen": (1, NONE + ": a pipe"),
        "os.open": (1, NONE + ": /dev/null"),
        "os.scandir": (1, HELD),
    },
    "tools/sandbox.py": {
        "os.scandir": (2, "names only; what they turn out to be is compared inside the sandbox"),
        "os.listdir": (1, "names only; what they turn out to be is compared inside the sandbox"),
        "Path('/proc/self/mountinfo').read_text": (1, NONE + ": the kernel's own list"),
        "Path('/proc/net/unix').read_text": (1, NONE + ": the kernel's own list"),
    },
    "tools/set_aside.py": {
        "os.open": (4, STATE),
        "kept_open": (5, "a folder of the workspace, held and moved by one name; records are " + STATE),
        "open": (2, NONE + ": a descriptor that is open already"),
        "os.listdir": (1, STATE),
        "os.scandir": (1, STATE),
        "os.walk": (1, "what is moved to another disk: it lands " + STATE),
        "shutil.copytree": (1, "what is moved to another disk: it lands " + STATE),
        "shutil.rmtree": (2, "what was copied to the state folder; links are not followed"),
    },
    "workspaces/artifacts.py": {"os.listdir": (1, HELD)},
    "workspaces/folders.py": {
        "os.listdir": (1, HELD),
        "os.open": (3, STATE),
        "kept_open": (4, STATE),
        "open": (1, NONE + ": a descriptor that is open already"),
    },
    "workspaces/repository.py": {"os.scandir": (1, HELD)},
    "workspaces/worktrees.py": {"os.listdir": (1, HELD), "os.open": (2, "one name at a time from a held folder")},
}


def calls(tree: ast.AST) -> Iterator[str]:
    """The calls in a file that may open something, as they are written, without their arguments."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", "")
            if re.search(r"\btx\.\w+\.\w+$", ast.unparse(node.func)):
                continue  # a verb of the store: it opens no file
            if name in OPENING or (isinstance(node.func, ast.Name) and node.func.id in ("open", "kept_open")):
                yield ast.unparse(node.func)


def found() -> dict[str, dict[str, int]]:
    trees = {path: ast.parse(path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    listed = {str(path.relative_to(PACKAGE)): Counter(calls(tree)) for path, tree in trees.items()}
    return {file: names for file, names in listed.items() if names and not file.startswith(tuple(LAYERS))}


@proves(
    "8.files.13", "Every file of a workspace is read through the one walk that follows no link and waits for no pipe"
)
def test_every_way_of_opening_a_file_was_looked_at() -> None:
    reviewed = {file: {call: times for call, (times, _) in listed.items()} for file, listed in REVIEWED.items()}
    assert found() == reviewed
