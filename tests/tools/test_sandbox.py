"""The sandbox: what it shows, hides and guards, as a list of arguments and as real commands meet it."""

import asyncio
import json
import os
import shlex
import signal
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, chdir, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from msgspec.structs import replace

from fledge.core.protected import GUARDED_NAMES, Protected, protected_at
from fledge.errors import BadInput
from fledge.tools.base import Tool, ToolContext
from fledge.tools.sandbox import (
    Mount,
    Network,
    Sandbox,
    SandboxPlan,
    bubblewrap,
    checked,
    find_sandbox,
    plan_mounts,
)
from fledge.tools.shell import exec_tool
from tests.left_out import requires
from tests.statements import proves
from tests.tools.places import SECRET, call, error, place, snapshot, text
from tests.workspaces.repository import make_repository, run_git

pytestmark = pytest.mark.root


@pytest.fixture(scope="module")
def aside(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder for what commands make at guarded paths."""
    return tmp_path_factory.mktemp("state") / "set-aside"


@pytest.fixture(scope="module")
def execute(aside: Path) -> Tool:
    """The tool in a real sandbox."""
    requires("bubblewrap")
    return exec_tool(find_sandbox(aside))


def kinds(plan: SandboxPlan) -> dict[str, str]:
    assert len({mount.path for mount in plan.mounts}) == len(plan.mounts)
    return {mount.path: mount.kind for mount in plan.mounts}


WALLS = ["--die-with-parent", "--unshare-user-try", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
WALLS += ["--unshare-cgroup-try"]
FLOOR = ["--cap-drop", "ALL", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
KERNEL = [
    *("/sys", "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi", "/proc/scsi"),
    *("/proc/driver", "/proc/mtrr", "/proc/pressure"),
]
FLOOR += [word for path in KERNEL for word in ("--ro-bind-try", path, path)]
RUN = [
    *("/run/systemd/resolve/resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
    *("/run/current-system", "/run/opengl-driver"),
]


@pytest.mark.parametrize(
    ("mounts", "network", "walls", "mounted"),
    [
        ([Mount("/w", "workspace")], "shared", [], ["--bind", "/w", "/w"]),
        ([Mount("/w", "workspace")], "none", ["--unshare-net"], ["--bind", "/w", "/w"]),
        (
            [Mount("/w/.fledge", "folder"), Mount("/w", "workspace")],
            "shared",
            [],
            ["--bind", "/w", "/w", "--tmpfs", "/w/.fledge"],
        ),
        (
            [Mount("/s/work/w", "workspace"), Mount("/s", "folder")],
            "shared",
            [],
            ["--tmpfs", "/s", "--bind", "/s/work/w", "/s/work/w"],
        ),
        (
            [Mount("/", "workspace"), Mount("/h/.netrc", "file"), Mount("/tmp", "folder")],
            "shared",
            [],
            ["--tmpfs", "/tmp", "--ro-bind", "/dev/null", "/h/.netrc"],
        ),
        (
            [Mount("/w", "workspace"), Mount("/w/a", "open"), Mount("/w/a/.git", "guarded"), Mount("/r", "readable")],
            "shared",
            [],
            ["--ro-bind", "/r", "/r", "--bind", "/w", "/w", "--bind", "/w/a", "/w/a", "--ro-bind", *["/w/a/.git"] * 2],
        ),
        (
            [Mount("/h", "closed"), Mount("/h/a", "open")],
            "shared",
            [],
            ["--ro-bind", "/h", "/h", "--bind", "/h/a", "/h/a"],
        ),
        (
            [Mount("/w", "workspace"), Mount("/run", "folder")],
            "shared",
            [],
            [
                "--tmpfs",
                "/run",
                *(word for path in RUN for word in ("--ro-bind-try", path, path)),
                "--bind",
                "/w",
                "/w",
            ],
        ),
    ],
)
def test_the_sandbox_is_read_only_with_mounts_on_top_outer_ones_first(
    mounts: list[Mount], network: Network, walls: list[str], mounted: list[str]
) -> None:
    place_of = next(mount.path for mount in mounts if mount.kind in ("workspace", "closed"))
    floor = [word if place_of != "/" or word != "--ro-bind" else "--bind" for word in FLOOR]
    assert bubblewrap("/usr/bin/bwrap", ["sh", "-c", "x"], mounts, network) == [
        *("/usr/bin/bwrap", *WALLS, *walls, *floor, *mounted),
        *("--chdir", place_of, "--", "sh", "-c", "x"),
    ]


@pytest.mark.parametrize(
    "mounts",
    [
        [],
        [Mount("/w", "workspace"), Mount("/w", "folder")],
        [Mount("/w", "workspace"), Mount("/v", "closed")],
    ],
)
def test_a_sandbox_needs_one_workspace_that_is_not_hidden(mounts: Iterable[Mount]) -> None:
    with pytest.raises(BadInput, match="workspace: must be one folder that is not hidden from tools"):
        bubblewrap("bwrap", ["x"], mounts)


@proves("8.exec.4", "The state folder is never visible to it")
def test_state_and_secrets_at_home_are_hidden_by_their_real_paths(tmp_path: Path) -> None:
    home, workspace, state = tmp_path / "home", tmp_path / "ws", tmp_path / "state"
    for folder in (home / ".ssh", home / "real-aws", workspace, state):
        folder.mkdir(parents=True)
    (home / ".netrc").touch()
    (home / ".aws").symlink_to("real-aws")
    (tmp_path / "link").symlink_to("ws")
    (tmp_path / "key").touch()
    protected = protected_at(str(home), (str(state), str(tmp_path / "key"), str(tmp_path / "absent")))
    plan = plan_mounts(tmp_path / "link", protected)
    mounts = kinds(plan)
    assert plan.missing == [f"{workspace}/{name}" for name in GUARDED_NAMES]
    assert {path: kind for path, kind in mounts.items() if path.startswith(str(tmp_path))} == {
        str(home / ".ssh"): "folder",
        str(home / "real-aws"): "folder",
        str(home / ".netrc"): "file",
        str(state): "folder",
        str(tmp_path / "key"): "file",
        str(workspace): "workspace",
    }
    assert mounts["/tmp"] == "folder"
    assert kinds(plan_mounts(Path("/tmp"), Protected()))["/tmp"] == "workspace"


@pytest.mark.parametrize("program", ["absent-program-x", "false", "{tmp}/no-program"])
def test_a_sandbox_that_does_not_work_is_none(tmp_path: Path, program: str) -> None:
    (tmp_path / "no-program").write_text("")
    (tmp_path / "no-program").chmod(0o755)
    assert find_sandbox(tmp_path, program.format(tmp=tmp_path)) is None


@proves("8.exec.2")
def test_a_sandbox_that_works_is_found(tmp_path: Path) -> None:
    (tmp_path / "walls").write_text("#!/bin/sh\nexit 0\n")
    (tmp_path / "walls").chmod(0o755)
    walls = str(tmp_path / "walls")
    # A process takes no program from a folder that was a workspace in it, as those of other tests are here.
    script = "import sys; from fledge.tools.sandbox import find_sandbox; print(find_sandbox(*sys.argv[1:]).program)"
    command = [sys.executable, "-c", script, str(tmp_path), walls, "none"]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == f"{walls}\n"


@pytest.fixture
def visible() -> Iterator[Path]:
    """A folder that a sandbox does not cover as a whole, as it does /tmp, where this checkout may be."""
    covered = ("/tmp/", "/var/tmp/", "/run/")
    places = (Path(__file__).resolve().parent, Path.home(), Path("/srv"))
    open_place = next(one for one in places if not f"{one}/".startswith(covered) and os.access(one, os.W_OK))
    with TemporaryDirectory(dir=open_place, prefix=".fledge-sandbox-") as folder:
        yield Path(folder)


@proves("8.exec.2")
@proves("8.exec.4")
@pytest.mark.parametrize("network", ["shared", "none"])
def test_from_a_real_sandbox_no_secret_is_seen_and_nothing_outside_is_changed(
    aside: Path, visible: Path, network: Network
) -> None:
    context, home = place(visible), visible / "home"
    (home / ".ssh").mkdir(parents=True)
    for path in (home / ".ssh" / "id", home / ".netrc", visible / "key"):
        path.write_text(SECRET)
    (visible / "outside" / "secret.txt").write_text("may be read")
    before = snapshot(visible / "outside"), snapshot(context.workspace / ".fledge"), snapshot(home)
    hidden = (*context.protected.hidden, str(visible / "key"))
    context = replace(context, protected=protected_at(str(home), hidden))
    found = find_sandbox(aside, network=network)
    assert found is not None
    told = call(
        exec_tool(found),
        context,
        command=f"cat {home}/.ssh/id {home}/.netrc {visible}/key .fledge/*; cat {visible}/outside/*;"
        f" echo x > .fledge/new; echo x > {visible}/outside/new; rm -rf {visible}/outside {home};"
        f" touch /etc/fledge-was-here; cat /proc/{os.getpid()}/environ; echo mine > mine",
    ).text
    assert SECRET not in told
    assert "may be read" in told
    assert f"cat: /proc/{os.getpid()}/environ: No such file or directory" in told
    assert (context.workspace / "mine").read_text() == "mine\n"
    assert (snapshot(visible / "outside"), snapshot(context.workspace / ".fledge"), snapshot(home)) == before
    assert not Path("/etc/fledge-was-here").exists()


def test_folders_that_may_be_read_are_shown_over_what_hides_them(tmp_path: Path) -> None:
    state, handed = tmp_path / "state", tmp_path / "state" / "given"
    work = tmp_path / "work"
    for folder in (handed, work):
        folder.mkdir(parents=True)
    plan = plan_mounts(work, Protected(hidden=(str(state),)), readable=(handed, work, tmp_path / "nowhere"))
    found = kinds(plan)
    assert (found[str(state)], found[str(handed)], found[str(work)]) == ("folder", "readable", "workspace")
    assert str(tmp_path / "nowhere") not in found
    command = bubblewrap("bwrap", ["true"], plan.mounts, cwd="sub")
    at = command.index(str(handed))
    assert command[at - 1 : at + 2] == ["--ro-bind", str(handed), str(handed)]
    assert command.index(str(state)) < at
    assert command[command.index("--chdir") + 1] == f"{work}/sub"


EMPTY = {"/dev", "/dev/pts", "/dev/shm", "/tmp", "/var/tmp", "/run", "/var/run"}
DEVICES = {
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts/ptmx", "console")
}
LIST_WRITABLE = r"""
while read -r _ _ _ _ point options _; do
  case $point,$options, in
    *,ro,*) ;;
    /proc*|/sys*|/dev*|$2) find "$point" -xdev \( -regex '/proc/[0-9]+' -o -path "$1/*" \) -prune \
      -o ! -type l -writable -print ;;
  esac
done < /proc/self/mountinfo
"""


@proves("8.exec.21", "Of any user, root included, a sandboxed command can write its workspace and empty folders only")
@pytest.mark.parametrize("user", [os.geteuid(), os.geteuid() or 65534])
@pytest.mark.parametrize("workspace", ["", "/"])
def test_all_that_a_command_can_write_is_its_workspace_empty_folders_and_a_few_devices(
    aside: Path, user: int, workspace: str
) -> None:
    requires("bubblewrap")
    found = find_sandbox(aside)
    assert found is not None
    with TemporaryDirectory(dir="/var/tmp", prefix="fledge-sandbox-") as folder:
        os.chown(folder, user, -1)
        place_of = workspace or folder
        plan = plan_mounts(
            Path(place_of), protected_at(folder if workspace else f"{folder}/none", unguarded=GUARDED_NAMES)
        )
        looked_at = "/proc*" if workspace else "*"
        command = ["/bin/sh", "-c", LIST_WRITABLE, "sh", place_of, looked_at]
        argv = bubblewrap(found.program, checked(command, plan.mounts), plan.mounts)
        done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd="/", user=user)
        assert done.stdout, done.stderr
        writable = {path for path in done.stdout.splitlines() if path not in DEVICES}
        assert writable - EMPTY - {place_of} == set()
        assert workspace or folder in writable


# ---- sockets ---------------------------------------------------------------------------------------------------------

ANSWERS = """
import socket, sys
for path in sys.argv[1:]:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(path.replace("@", chr(0)))
        except OSError:
            continue
    print("answers:", path)
"""


@pytest.fixture
def listening() -> Iterator[Callable[[str], str]]:
    """Start a server on a socket at a path; a relative one is bound in the folder of its name."""
    with ExitStack() as stack:

        def start(path: str, is_relative: bool = False) -> str:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            if is_relative:
                with chdir(os.path.dirname(path)):
                    server.bind(os.path.basename(path))
            else:
                server.bind(path.replace("@", "\0"))
            if not path.startswith("@"):
                stack.callback(os.unlink, path)
            server.listen()
            return path

        yield start


def answering(tool: Tool, context: ToolContext, *paths: str) -> list[str]:
    """The sockets that answer a command in the sandbox."""
    told = text(tool, context, command=shlex.join([sys.executable, "-c", ANSWERS, *paths]))
    return [line.removeprefix("answers: ") for line in told.splitlines() if line.startswith("answers: ")]


@proves("8.exec.23", "No socket outside the workspace answers a sandboxed command, wherever and whenever it was made")
@pytest.mark.parametrize("network", ["shared", "none"])
def test_no_socket_outside_the_workspace_answers_from_the_sandbox(
    aside: Path, context: ToolContext, visible: Path, network: Network, listening: Callable[..., str]
) -> None:
    requires("bubblewrap")
    tool = exec_tool(find_sandbox(aside, network=network))
    home = visible / "home"
    (home / ".agent" / "run").mkdir(parents=True)
    (home / "with space").mkdir()
    (home / "link").symlink_to("with space")
    run = [path for path in ("/run", f"/run/user/{os.getuid()}") if os.access(path, os.W_OK)]
    name = f"fledge-{os.getpid()}.sock"
    outside = [
        *(listening(f"{folder}/{name}") for folder in (*run, "/tmp", "/var/tmp", "/dev/shm", home, visible)),
        *(listening(f"{home}/{inner}/{name}") for inner in (".agent/run", "link")),
        listening(f"{home}/.agent/{name}", is_relative=True),
    ]
    own, abstract = listening(f"{context.workspace}/own.sock"), listening(f"@fledge-{os.getpid()}")
    aliases = [*(f"/var{folder}/{name}" for folder in run), f"{home}/with space/{name}"]
    found = answering(tool, context, *outside, *aliases, own, abstract)
    assert found == ([own, abstract] if network == "shared" else [own])
    assert [path for path in outside if not stat.S_ISSOCK(os.lstat(path).st_mode)] == []


@proves("8.exec.23")
def test_with_the_home_folder_as_workspace_its_sockets_do_not_answer(
    execute: Tool, context: ToolContext, visible: Path, listening: Callable[..., str]
) -> None:
    home = visible / "home"
    (home / "deep").mkdir(parents=True)
    paths = [listening(f"{home}/top.sock"), listening(f"{home}/deep/one.sock")]
    for workspace in (home, visible):
        assert answering(execute, replace(context, workspace=workspace), *paths) == []


@pytest.mark.parametrize(
    ("fails", "told"), [(1, "walls\n[exit code 0; "), (2, "walls\n[exit code 0; "), (3, "bwrap: no")]
)
def test_a_sandbox_that_cannot_be_made_is_tried_again_because_a_socket_may_vanish_meanwhile(
    context: ToolContext, tmp_path: Path, fails: int, told: str
) -> None:
    walls = tmp_path / "walls"
    walls.write_text(
        f"#!/bin/sh\necho x >> {tmp_path}/tries\n[ $(wc -l < {tmp_path}/tries) -gt {fails} ] && echo walls && exit 0\n"
        "echo bwrap: no; exit 1\n"
    )
    walls.chmod(0o755)
    tool = exec_tool(Sandbox(program=str(walls), aside=tmp_path / "aside"))
    assert call(tool, context, command=":").text.startswith(told)


@pytest.mark.parametrize("end", ["exit 1", "kill -9 $$", "kill -9 1"])
def test_a_command_runs_once_however_it_ends(execute: Tool, context: ToolContext, end: str) -> None:
    call(execute, context, command=f"echo ran >> ran; ls /proc/self/fd | wc -w; {end}")
    assert (context.workspace / "ran").read_text() == "ran\n"


# ---- what is guarded -------------------------------------------------------------------------------------------------


@pytest.fixture
def context(visible: Path) -> ToolContext:
    """A workspace with nothing in it, for somebody whose home lies beside it."""
    (visible / "ws").mkdir()
    return ToolContext(
        session="agent:main:main",
        entry=1,
        index=0,
        workspace=visible / "ws",
        protected=protected_at(str(visible / "home"), (str(visible / "state"),)),
        env={"PATH": os.environ["PATH"], "GIT_CONFIG_GLOBAL": "/dev/null", "HOME": "/nonexistent"}
        | {f"GIT_{who}_{what}": "t@example.org" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")},
    )


LINK = "$(git rev-parse HEAD)"
ATTACKS = [
    "git config core.fsmonitor ./evil",
    "echo '[core] fsmonitor = ./evil' >> .git/config",
    "echo ./evil > .git/hooks/post-checkout",
    "mv .git git && cp -r git .git",
    "rm -rf .git",
    "ln -sfn /nowhere .git",
    "mount --bind /tmp .git",
    "echo ../elsewhere > .git/commondir",
    f"mkdir x && git init x && git update-index --add --cacheinfo 160000,{LINK},x",
    "git commit --allow-empty -m unasked",
    "python3 -c \"import os; os.rename('.git', 'git')\"",
]


@proves(
    "8.exec.11", "In the sandbox `.git`, `.envrc`, `.mcp.json` and fledge's own settings of a project are read-only"
)
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_command_changes_nothing_of_a_repository_that_the_persons_next_git_would_act_on(
    execute: Tool, context: ToolContext, attack: str
) -> None:
    repo = context.workspace
    repo.rmdir()
    make_repository(repo)
    before = snapshot(repo / ".git")
    told = error(execute, context, command=attack)
    assert snapshot(repo / ".git") == before
    if "Read-only file system" in told:
        assert "name the one that a command must write in `writable`, and a person is asked first." in told
    assert text(execute, context, command="echo more > more.txt; git status --porcelain").startswith("?? ")


@proves(
    "8.exec.22", "Of a guard nothing appears in a folder; what a command makes there is set aside at its end, and told"
)
@proves("8.exec.11")
@pytest.mark.parametrize("name", GUARDED_NAMES)
@pytest.mark.parametrize(
    "attack",
    [
        "echo evil > {}",
        "mkdir {}",
        "mkdir {} && echo evil > {}/x && chmod 0 {}",
        "echo evil > x && mv x {}",
        "ln -s x {}",
        "echo evil > x && ln x {}",
        "mkfifo {}",
        "echo evil > {}; chmod 0 .",
        "echo evil > {}; kill -9 $$",
        "setsid sh -c 'while :; do echo evil > {}; done' > /dev/null 2>&1 & until [ -e {} ]; do :; done",
    ],
)
def test_what_a_command_makes_at_a_guarded_path_is_set_aside_at_its_end_and_told(
    execute: Tool, context: ToolContext, aside: Path, name: str, attack: str
) -> None:
    told = error(execute, context, command=attack.replace("{}", name))
    context.workspace.chmod(0o700)
    assert {entry.name for entry in context.workspace.iterdir()} <= {"x"}
    said = next(line for line in told.splitlines() if line.startswith(f"[{context.workspace}/{name} appeared while"))
    kept = Path(said.removesuffix("]").rpartition(" ")[2])
    assert (kept.name, kept.parents[1], os.path.lexists(kept)) == (name, aside, True)
    assert name not in text(execute, context, command="ls -A")


def test_nothing_of_the_guard_appears_in_the_workspace_while_a_command_runs_or_after_it_was_killed(
    execute: Tool, context: ToolContext, aside: Path
) -> None:
    gate = context.workspace / "gate"
    os.mkfifo(gate)

    async def main() -> None:
        running = asyncio.ensure_future(execute.call('{"command": "cat gate"}', context))
        opened = await asyncio.to_thread(os.open, gate, os.O_WRONLY)  # once the command has begun to read
        assert list(context.workspace.iterdir()) == [gate]
        running.cancel()
        await asyncio.wait([running])
        os.close(opened)

    asyncio.run(main())
    assert list(context.workspace.iterdir()) == [gate]
    assert [entry.name for entry in aside.iterdir() if entry.suffix == ".json"] == []


RUN_AND_DIE = """
import asyncio, msgspec, sys
from pathlib import Path
from fledge.core.protected import Protected
from fledge.tools.base import ToolContext
from fledge.tools.sandbox import find_sandbox
from fledge.tools.shell import exec_tool
workspace, aside, command = sys.argv[1:]
context = ToolContext(session="s", entry=1, index=0, workspace=Path(workspace), protected=Protected())
arguments = msgspec.json.encode({"command": command}).decode()
print(asyncio.run(exec_tool(find_sandbox(Path(aside))).call(arguments, context)))
"""


@proves("8.exec.22")
def test_what_a_command_made_before_its_process_was_killed_is_set_aside_by_the_next_one(
    execute: Tool, context: ToolContext, aside: Path
) -> None:
    ws = context.workspace
    os.mkfifo(ws / "gate")
    script = [sys.executable, "-c", RUN_AND_DIE, str(ws), str(aside), "echo evil > .envrc; mkdir .git; cat gate"]
    with subprocess.Popen(script) as process:
        opened = os.open(ws / "gate", os.O_WRONLY)  # once the command has begun to read
        assert {entry.name for entry in ws.iterdir()} == {"gate", ".envrc", ".git"}
        text(execute, context, command=":")  # the other command runs, so its files are left to it
        assert (ws / ".envrc").exists()
        process.send_signal(signal.SIGKILL)
    os.close(opened)
    told = text(execute, context, command="ls -A")
    assert f"[{ws}/.envrc appeared while a sandboxed command ran, and was set aside: " in told
    assert f"[{ws}/.git appeared while a sandboxed command ran, and was set aside: " in told
    assert [entry.name for entry in ws.iterdir()] == ["gate"]
    assert text(execute, context, command="ls -A").startswith("gate\n")


@proves("8.exec.22")
def test_what_one_command_makes_while_another_runs_is_set_aside_whichever_ends_first(
    execute: Tool, context: ToolContext
) -> None:
    ws = context.workspace
    for name in ("first", "second"):
        os.mkfifo(ws / name)

    async def main() -> None:
        opened = {}
        running = {}
        for name in ("first", "second"):
            command = json.dumps({"command": f"cat {name} && echo {name} > .envrc"})
            if name == "second":
                (ws / ".envrc").write_text("made by the first")
            running[name] = asyncio.ensure_future(execute.call(command, context))
            opened[name] = await asyncio.to_thread(os.open, ws / name, os.O_WRONLY)
        for name in ("first", "second"):
            os.close(opened[name])
            told = await running[name]
            assert (told.is_error, f"{ws}/.envrc appeared" in told.text) == (True, True), name
            assert not (ws / ".envrc").exists()

    asyncio.run(main())


@proves("8.exec.11")
@pytest.mark.parametrize(
    "attack",
    [
        "echo evil >> vendor/lib/.git/config",
        "mv vendor other && mkdir -p vendor/lib && cp -r other/lib/.git vendor/lib/.git",
        "mv vendor/lib vendor/bil && cp -r vendor/bil vendor/lib && echo evil >> vendor/lib/.git/config",
        "echo evil > agents/reviewer.md",
        "echo evil > agents/new.md",
        "mv agents stnega && mkdir agents && echo evil > agents/reviewer.md",
        "echo evil > fledge.json5",
        "mv fledge.json5 x && echo evil > fledge.json5",
        "echo evil > vendor/.envrc",
    ],
)
def test_repositories_further_down_and_settings_of_the_project_are_guarded_too(
    execute: Tool, context: ToolContext, attack: str
) -> None:
    ws = context.workspace
    make_repository(ws / "vendor" / "lib")
    (ws / "vendor" / ".envrc").write_text("own")
    (ws / "agents").mkdir()
    (ws / "agents" / "reviewer.md").write_text("You review.")
    (ws / "fledge.json5").write_text("{}")
    guarded = (ws / "vendor" / "lib" / ".git", ws / "agents", ws / "vendor")
    before = [snapshot(one) for one in guarded]
    error(execute, context, command=attack)
    assert [snapshot(one) for one in guarded] == before
    assert (ws / "fledge.json5").read_text() == "{}"
    assert text(execute, context, command="echo x > vendor/new && mv vendor/new vendor/lib/new && cat vendor/lib/new")


def test_in_a_folder_of_code_that_is_called_agents_only_the_agents_themselves_are_guarded(
    execute: Tool, context: ToolContext
) -> None:
    folder = context.workspace / "agents"
    folder.mkdir()
    (folder / "reviewer.md").write_text("You review.")
    (folder / "code.py").write_text("pass")
    text(execute, context, command="echo x > agents/code.py; echo x > agents/more.py")
    error(execute, context, command="echo evil > agents/reviewer.md")
    error(execute, context, command="mv agents x && mkdir agents && echo evil > agents/reviewer.md")
    assert [(folder / name).read_text() for name in ("reviewer.md", "code.py")] == ["You review.", "x\n"]


def test_a_command_that_a_person_has_allowed_to_writes_what_it_names(execute: Tool, context: ToolContext) -> None:
    context.workspace.rmdir()
    make_repository(context.workspace)
    asked = {"command": "echo more > more.txt && git add . && git commit -qm more", "writable": [".git"]}
    assert error(execute, context, **asked).startswith(
        "exec: writable: needs a person's approval, and no person was asked"
    )
    allowed = replace(context, approved=True)
    text(execute, allowed, **asked)
    assert run_git(context.workspace, "log", "--format=%s") == "more\nfirst"
    assert error(execute, allowed, command=":", writable=["src"]).startswith("exec: writable: must be one of .git, ")
    assert execute.needs_person(json.dumps(asked), context)
    assert not execute.needs_person('{"command": "git commit"}', context)
    assert not exec_tool().needs_person(json.dumps(asked), context)


def test_what_the_settings_do_not_guard_is_written_unasked(execute: Tool, context: ToolContext) -> None:
    context.workspace.rmdir()
    make_repository(context.workspace)
    free = replace(context, protected=protected_at("/nonexistent", unguarded=(".git",)))
    text(execute, free, command="git commit -q --allow-empty -m unasked")
    assert run_git(context.workspace, "log", "--format=%s") == "unasked\nfirst"
    assert error(execute, free, command="echo x > .envrc")


@proves("8.exec.4")
@pytest.mark.parametrize(
    "attack", ["mv a b", "mv a/deep b", "mkdir b && mv a/deep/state b/", "ln -s a/deep/state s", ":"]
)
def test_state_further_down_in_the_workspace_cannot_be_renamed_away_and_read_by_the_next_command(
    execute: Tool, context: ToolContext, attack: str
) -> None:
    state = context.workspace / "a" / "deep" / "state"
    state.mkdir(parents=True)
    (state / "fledge.db").write_text(SECRET)
    context = replace(context, protected=Protected(hidden=(str(state),)))
    for command in (
        attack,
        "grep -r the.secret . ; cat */fledge.db */*/fledge.db */*/*/fledge.db; find / -name fledge.db",
    ):
        assert SECRET not in call(execute, context, command=command).text
    assert (state / "fledge.db").read_text() == SECRET


@pytest.mark.parametrize(
    "attack", ["mv inner x", "mv deep x", "mv deep/inner x", "rm -rf deep/inner", "echo x > deep/inner/.envrc"]
)
def test_the_workspace_of_another_agent_that_lies_in_this_one_is_not_swapped_for_something_else(
    execute: Tool, context: ToolContext, attack: str
) -> None:
    other = context.workspace / "deep" / "inner"
    other.mkdir(parents=True)
    (other / "file").write_text("theirs")
    context = replace(context, protected=protected_at("/nonexistent", workspaces=(str(context.workspace), str(other))))
    before = [path.lstat().st_ino for path in (other.parent, other)]
    error(execute, context, command=attack)
    assert [path.lstat().st_ino for path in (other.parent, other)] == before
    assert not (other / ".envrc").exists()
    assert text(execute, context, command="echo x > deep/inner/file && cat deep/inner/file").startswith("x\n")


def test_nothing_in_what_is_hidden_or_guarded_as_a_whole_is_bound_to_be_written(tmp_path: Path) -> None:
    ws = tmp_path / "ws"
    for folder in ("etc/app/keys", "hidden/inner", "etc/app/repo/.git"):
        (ws / folder).mkdir(parents=True)
    (ws / "etc/app/keys/key").touch()
    hidden = (str(ws / "etc/app/keys/key"), str(ws / "hidden"))
    protected = Protected(hidden=hidden, guarded=(str(ws / "etc"),), workspaces=(str(ws / "hidden" / "inner"),))
    found = {path.removeprefix(f"{ws}/"): kind for path, kind in kinds(plan_mounts(ws, protected)).items()}
    inside = {path: kind for path, kind in found.items() if path.startswith(("etc", "hidden"))}
    assert inside == {
        "etc": "guarded",
        "etc/app/keys/key": "file",
        "etc/app/repo/.git": "guarded",
        "hidden": "folder",
    }


# ---- the home folder -------------------------------------------------------------------------------------------------


@pytest.fixture
def at_home(context: ToolContext, visible: Path) -> ToolContext:
    """The same with the home folder as the workspace."""
    home = visible / "home"
    for folder in (".ssh", ".config/app", ".config/git", "notes"):
        (home / folder).mkdir(parents=True)
    for name in (".bashrc", ".ssh/id", ".config/git/config", ".config/git/credentials", ".config/app/settings"):
        (home / name).write_text(SECRET if ".ssh" in name or "credentials" in name else "own")
    return replace(context, workspace=home)


@proves("8.exec.8", "Of a home folder as workspace, secrets are not seen and start-up files are not written")
@pytest.mark.parametrize("workspace", ["home", "above"])
def test_in_a_home_folder_secrets_are_hidden_and_start_up_files_stay_as_they_are(
    execute: Tool, at_home: ToolContext, workspace: str, visible: Path
) -> None:
    home = at_home.workspace
    context = at_home if workspace == "home" else replace(at_home, workspace=visible)
    before = snapshot(home)
    for path in (".bashrc", ".profile", ".ssh/authorized_keys", ".config/autostart/x", ".config/git/config", ".netrc"):
        call(execute, context, command=f"mkdir -p $(dirname {home}/{path}); echo evil > {home}/{path}")
        assert snapshot(home) == before, path
    for command in (f"mv {home}/.config {home}/c", f"mv {home}/.bashrc {home}/x", f"rm -r {home}/.ssh"):
        error(execute, context, command=command)
    assert SECRET not in call(execute, context, command=f"cat {home}/.ssh/* {home}/.config/git/credentials").text
    assert snapshot(home) == before
    text(execute, context, command=f"echo mine > {home}/notes/mine; echo mine > {home}/.config/app/settings")
    assert (home / "notes" / "mine").read_text() == (home / ".config" / "app" / "settings").read_text() == "mine\n"


def test_the_whole_machine_as_workspace_is_still_a_sandbox(execute: Tool, at_home: ToolContext, visible: Path) -> None:
    home, context = at_home.workspace, replace(at_home, workspace=Path("/"))
    before = snapshot(home)
    told = call(
        execute,
        context,
        command=f"cat {home}/.ssh/id /proc/{os.getpid()}/environ; echo evil > {home}/.bashrc;"
        f" touch /etc/fledge-was-here; echo mine > {visible}/mine",
    ).text
    assert SECRET not in told
    assert f"cat: /proc/{os.getpid()}/environ: No such file" in told
    assert snapshot(home) == before
    assert not Path("/etc/fledge-was-here").exists()
    assert (visible / "mine").read_text() == "mine\n"


# ---- races -----------------------------------------------------------------------------------------------------------


@proves("8.exec.11")
@pytest.mark.parametrize("swapped", ["vendor", "vendor/lib/.git", "vendor/lib", "agents"])
@pytest.mark.parametrize("is_relative", [True, False])
def test_nothing_runs_in_a_sandbox_that_a_swapped_folder_made_otherwise_than_meant(
    aside: Path, context: ToolContext, visible: Path, swapped: str, is_relative: bool
) -> None:
    ws, hidden = context.workspace, visible / "home" / ".ssh"
    hidden.mkdir(parents=True)
    make_repository(hidden / "lib")
    make_repository(ws / "vendor" / "lib")
    (ws / "agents").mkdir()
    (ws / "agents" / "one.md").touch()
    plan = plan_mounts(ws, context.protected)
    os.rename(ws / swapped, ws / "aside")
    (ws / swapped).symlink_to(os.path.relpath(hidden, (ws / swapped).parent) if is_relative else hidden)
    found = find_sandbox(aside)
    assert found is not None
    argv = bubblewrap(found.program, checked(["/bin/sh", "-c", "echo ran"], plan.mounts), plan.mounts)
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stdout == ""


@proves("8.exec.11")
def test_a_folder_swapped_for_a_link_while_sandboxes_are_made_opens_nothing(
    execute: Tool, context: ToolContext, visible: Path
) -> None:
    """Somebody keeps swapping a folder with a repository for a link to what is hidden, while sandboxes mount it. A
    command could not, as that folder is mounted in its own sandbox too, unless the repository is younger than it."""
    ws, hidden = context.workspace, visible / "home" / ".ssh"
    hidden.mkdir(parents=True)
    (hidden / "id").write_text(SECRET)
    make_repository(hidden / "lib")
    make_repository(ws / "vendor" / "lib")
    (ws / "trap").symlink_to("../home/.ssh")
    before = snapshot(hidden)
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for one, other in (("vendor", "aside"), ("trap", "vendor"), ("vendor", "trap"), ("aside", "vendor")):
                with suppress(OSError):
                    os.rename(ws / one, ws / other)

    racer = threading.Thread(target=swap)
    racer.start()
    told = []
    try:
        for _ in range(25):
            command = (
                "cat vendor/id vendor/*/id ../home/.ssh/id; echo evil >> vendor/lib/.git/config; echo x > vendor/id"
            )
            told.append(call(execute, context, command=f"{command}; echo evil > ../home/.ssh/id").text)
    finally:
        over.set()
        racer.join()
    assert not [one for one in told if SECRET in one]
    assert snapshot(hidden) == before


@proves("8.exec.12")
def test_what_fledge_runs_from_is_guarded_in_every_workspace_that_holds_it(tmp_path: Path) -> None:
    for folder in ("ws/.venv/bin", "ws/src/fledge", "ws/links", "ws/real/env", "other"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "ws" / "links" / "env").symlink_to("../real/env")
    code = tuple(f"{tmp_path}/ws/{name}" for name in (".venv", ".venv/bin", "src/fledge", "real/env", "absent"))
    protected = Protected(home=str(tmp_path), code=(*code, f"{tmp_path}/ws"), linking=(f"{tmp_path}/ws/links",))
    made = {
        path.removeprefix(f"{tmp_path}/"): kind for path, kind in kinds(plan_mounts(tmp_path / "ws", protected)).items()
    }
    assert {name: made.get(name) for name in ("ws/.venv", "ws/src/fledge", "ws/real/env", "ws/links", "ws/src")} == {
        **dict.fromkeys(("ws/.venv", "ws/src/fledge", "ws/real/env", "ws/links"), "guarded"),
        "ws/src": "open",
    }
    assert not {"ws/.venv/bin", "ws/absent"} & made.keys()
    assert made["ws"] == "workspace"
    above = kinds(plan_mounts(tmp_path, protected))
    assert above[f"{tmp_path}/ws"] == "guarded"
    assert not [path for path in kinds(plan_mounts(tmp_path / "other", protected)) if path.startswith(f"{tmp_path}/ws")]
    writable = kinds(plan_mounts(tmp_path / "ws", protected, writable=[".venv"]))
    assert (writable.get(f"{tmp_path}/ws/.venv"), writable[f"{tmp_path}/ws/src/fledge"]) == (None, "guarded")
