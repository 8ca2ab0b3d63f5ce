"""The home folder as a workspace: only after a yes, by the real command, with a terminal and without."""

import os
import pty
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest

import fledge
from fledge.config import workspaces
from fledge.errors import BadInput, Refused
from fledge.models.scripted import ScriptedModel, echo
from tests.cli.command import PROGRAM, Done
from tests.cli.command import fledge as command
from tests.statements import proves

NO_SUCH_MODEL = "no provider 'nosuch'"
"""What is said once the workspace is fine."""


class Home:
    """A home folder, from which the command is run."""

    def __init__(self, folder: Path) -> None:
        self.home, self.user = folder / "home", folder / "user"
        (self.home / "project").mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.endswith(("_API_KEY", "_BASE_URL"))}
        state = {"FLEDGE_CONFIG": str(self.user), "FLEDGE_STATE": str(folder / "state")}
        self.env = {**kept, **state, "HOME": str(self.home)}

    def run(self, *arguments: str, cwd: Path | None = None) -> Done:
        return command(*arguments, cwd=cwd or self.home, env=self.env)

    def run_at_terminal(self, answer: str, *arguments: str, cwd: Path | None = None) -> tuple[int, str]:
        """The exit code, and all that was shown, of a command at a terminal at which somebody gives this answer."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [*PROGRAM, *arguments],
            cwd=cwd or self.home,
            env=self.env,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        os.write(ours, answer.encode())
        shown = b""
        try:
            while piece := os.read(ours, 4096):
                shown += piece
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        return process.wait(timeout=60), shown.decode()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


RUN = ("run", "hello", "--model", "nosuch/x")


@proves("8.trust.5", "The home folder, or one that holds it, is a workspace only after a yes")
@pytest.mark.parametrize(
    "words",
    [RUN, ("spawn", "hello", "--model", "nosuch/x"), ("send", "main", "hello", "--model", "nosuch/x"), ("chat",)],
)
def test_without_a_terminal_it_is_refused_naming_the_command_that_says_yes(home: Home, words: tuple[str, ...]) -> None:
    done = home.run(*words)
    assert done.returncode == 1
    assert f"{home.home} holds your whole home folder" in done.stderr
    assert f"say yes once: fledge trust --workspace {home.home}" in done.stderr
    assert done.stderr.count("\n") == 1
    above = home.run(*words, cwd=home.home.parent)
    assert f"fledge trust --workspace {home.home.parent}" in above.stderr
    assert "holds your whole home folder" not in home.run(*RUN, cwd=home.home / "project").stderr


@proves("8.trust.5")
def test_a_yes_is_kept_by_real_path_and_can_be_taken_back(home: Home) -> None:
    (home.home.parent / "link").symlink_to("home")
    said = home.run("trust", "--workspace", str(home.home.parent / "link"))
    assert said.stdout.startswith(f"agents may work in {home.home};")
    assert workspaces.accepted(home.user) == [str(home.home)]
    assert (home.user / workspaces.FILE).stat().st_mode & 0o777 == 0o600
    assert NO_SUCH_MODEL in home.run(*RUN).stderr
    assert f"{home.home}  (as a workspace, with your home folder in it)" in home.run("trust", "--list").stdout
    assert "holds your whole home folder" in home.run(*RUN, cwd=home.home.parent).stderr
    assert "no longer" in home.run("trust", "--workspace", str(home.home), "--revoke").stdout
    assert "holds your whole home folder" in home.run(*RUN).stderr


@proves("8.trust.5")
@pytest.mark.parametrize(("answer", "said_yes"), [("y\n", True), ("yes\n", True), ("n\n", False), ("\n", False)])
def test_at_a_terminal_it_is_asked_and_a_yes_is_kept(home: Home, answer: str, said_yes: bool) -> None:
    code, shown = home.run_at_terminal(answer, *RUN)
    assert code == 1
    assert "Let agents work here? [y/N]" in shown
    assert (NO_SUCH_MODEL in shown) is said_yes
    assert workspaces.accepted(home.user) == [str(home.home)] * said_yes


def test_doctor_says_so(home: Home) -> None:
    refused = home.run("doctor", "--model", "own/model")
    assert refused.returncode == 1
    assert f"fail  workspace    {home.home} holds your whole home folder" in refused.stdout
    assert f"fledge trust --workspace {home.home}" in refused.stdout
    home.run("trust", "--workspace", ".")
    allowed = home.run("doctor", "--model", "own/model")
    assert f"warn  workspace    {home.home} holds your whole home folder, and you said yes" in allowed.stdout
    assert "workspace" not in home.run("doctor", "--model", "own/model", cwd=home.home / "project").stdout


def test_doctor_warns_of_import_folders_in_which_agents_write(home: Home) -> None:
    source, apart = home.home / "project" / "src", home.home / "apart"
    apart.mkdir()
    home.env |= {"PYTHONPATH": f"{home.home}/elsewhere:{source}"}
    shown = home.run("doctor", "--model", "own/model", cwd=source.parent).stdout
    assert f"warn  PYTHONPATH   {source} lies in this folder: each Python that starts imports what agents" in shown
    assert "env -u PYTHONPATH fledge" in shown
    assert "PYTHONPATH" not in home.run("doctor", "--model", "own/model", cwd=apart).stdout


def test_looking_needs_no_yes(home: Home) -> None:
    assert "holds your whole" not in home.run("ps").stderr + home.run("config").stderr + home.run("tree").stderr


@proves("8.trust.5")
def test_a_program_says_yes_by_naming_the_folder(home: Home, tmp_path: Path) -> None:
    model = ScriptedModel(echo)
    with chdir(home.home):
        unnamed = fledge.open(tmp_path / "state", model=model, config={}, env=home.env)
        with pytest.raises(Refused, match="holds your whole home folder"):
            unnamed.check()
        fledge.open(tmp_path / "state", model=model, config={}, env=home.env, workspace=home.home).check()
        elsewhere = {"agents": {"defaults": {"workspace": "/"}}}
        named = fledge.open(tmp_path / "state", model=model, config=elsewhere, env=home.env, workspace=home.home)
        with pytest.raises(Refused, match=r"^/ holds your whole home folder"):
            named.check()


@proves("8.trust.5")
def test_a_program_that_does_not_look_first_is_refused_and_nothing_is_asked_of_a_model(
    home: Home, tmp_path: Path
) -> None:
    model = ScriptedModel(echo)

    async def talk(fl: fledge.Fledge) -> object:
        return await fl.session("main").send("hello")

    async def spawn(fl: fledge.Fledge) -> object:
        return await (await fl.spawn("hello"))

    with chdir(home.home):
        for act in (talk, spawn):
            with pytest.raises(Refused, match="holds your whole home folder"):
                fledge.run_sync(act, tmp_path / "state", model=model, config={}, env=home.env)
    assert model.requests == []


@pytest.mark.parametrize("text", ["", "{}", "[1]", "["])
def test_a_list_of_yeses_that_cannot_be_read_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / workspaces.FILE).write_text(text)
    with pytest.raises(BadInput, match=r"workspaces\.json.*remove it to take back every yes"):
        workspaces.accepted(tmp_path)


def test_a_yes_to_what_is_no_folder_is_refused_and_one_that_nobody_gave_cannot_be_taken_back(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--workspace: must be a folder that exists"):
        workspaces.accept(tmp_path / "nowhere", tmp_path)
    assert not workspaces.take_back(tmp_path, tmp_path)
    workspaces.accept(tmp_path, tmp_path)
    assert workspaces.take_back(tmp_path, tmp_path)
    assert workspaces.accepted(tmp_path) == []
