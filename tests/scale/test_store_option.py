"""`--store` and `FLEDGE_STORE`: commands on a store of a PostgreSQL server, as a person types them."""

import asyncio
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import fledge
from fledge.errors import StoreLocked
from fledge.models.scripted import ScriptedModel
from fledge.store.postgres import PostgresStore
from fledge.store.sqlite import SqliteStore
from tests.api.scene import obedient
from tests.cli import command
from tests.statements import proves
from tests.store.postgres import Server

SECRET = "pass-not-to-be-shown"


class Desk:
    """A folder to type commands in, and the address of a store of its own."""

    def __init__(self, server: Server, folder: Path) -> None:
        self.url, self.folder = server.url(server.new_schema()), folder
        self.env = {
            **{name: value for name, value in os.environ.items() if not name.startswith("FLEDGE_")},
            "HOME": str(folder),
            "FLEDGE_CONFIG": str(folder / "config"),
            "FLEDGE_STATE": str(folder / "own"),
        }
        (folder / "config").mkdir()
        (folder / "work").mkdir()
        (folder / "config" / "fledge.json5").write_text('{agents: {defaults: {model: "scripted/echo"}}}')

    def do(self, *line: str, **env: str) -> command.Done:
        """A command in this folder."""
        return command.fledge(*line, cwd=self.folder / "work", env=self.env | env)

    def told(self, *line: str) -> str:
        """What a command on the store prints; it must succeed."""
        done = self.do(*line, "--store", self.url)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture
def desk(server: Server, tmp_path: Path) -> Desk:
    return Desk(server, tmp_path)


def unfinished(desk: Desk) -> None:
    """Leave a run in the store that nobody drives."""

    async def spawn(fl: fledge.Fledge) -> None:
        await fl.spawn("Wait for me", label="digger")

    state = desk.folder / "own" / "stores"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLEDGE_STATE", str(desk.folder / "own"))
        fledge.run_sync(spawn, desk.url, model=ScriptedModel(obedient), config={})
    assert len(list(state.iterdir())) == 1


@proves("7.server.16", "Every command works on a store of a server as on a folder: by --store, else FLEDGE_STORE")
def test_a_prompt_is_answered_and_looked_at_on_a_store_of_a_server(desk: Desk) -> None:
    assert desk.told("run", "hello", "--quiet") == "hello\n"
    assert "hello" in desk.told("log")
    assert desk.told("send", "main", "again") == "again\n"
    assert desk.told("spawn", "sing") == "sing\n"
    assert "sing" in desk.told("tree")
    assert not (desk.folder / "own" / "fledge.db").exists()
    by_variable = desk.do("sessions", "--json", FLEDGE_STORE=desk.url)
    assert "subagent" in {row["kind"] for row in json.loads(by_variable.stdout)}


@proves("7.server.16")
def test_a_run_that_nobody_drives_is_looked_at_and_decided_on(desk: Desk) -> None:
    unfinished(desk)
    assert "digger" in desk.told("tree", "--active")
    assert "digger" in desk.told("info", "digger")
    assert desk.told("kill", "digger", "--dry-run").count("digger") == 1
    assert desk.told("kill", "digger") == "killed 1\n"
    assert desk.told("resume", "digger") == "resumed: attempt 2\n"
    said = desk.do("doctor", "--offline", "--store", desk.url).stdout
    assert "ok    store" in said
    assert "warn  workers      no process runs the agents of this store" in said


@proves("7.server.17", "A command that only looks or decides neither makes a store nor brings it up to date")
def test_a_command_that_looks_makes_no_store(desk: Desk, server: Server) -> None:
    for line in (["ps"], ["kill", "digger"], ["doctor", "--offline"]):
        done = desk.do(*line, "--store", desk.url)
        assert "has no store: `fledge worker` or `fledge serve` makes one" in done.stdout + done.stderr
        assert done.returncode == 1
    schema = desk.url.rpartition("=")[2]
    assert server.sql(f"SELECT to_regnamespace('{schema}') IS NULL") == [(True,)]
    desk.told("run", "hello")
    server.sql(f"UPDATE {schema}.fledge_store SET version = version - 1")
    done = desk.do("ps", "--store", desk.url)
    assert re.search(r"has schema \d+, this fledge knows \d+: start a worker of this version", done.stderr)


@proves("7.server.4")
@pytest.mark.parametrize("line", [["ps"], ["kill", "x"], ["run", "hi"], ["worker"], ["serve"], ["doctor"], ["chat"]])
@pytest.mark.parametrize("place", ["--store", "FLEDGE_STORE"])
@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://wren:{SECRET}@127.0.0.1:1/nest",
        f"postgresql://127.0.0.1:1/nest?user=wren&password={SECRET}",
        f"postgresql://wren:{SECRET}@127.0.0.1:port/nest",
        f"postgres//wren:{SECRET}@127.0.0.1/nest",
    ],
)
def test_no_command_shows_the_password_of_a_store(tmp_path: Path, line: list[str], place: str, url: str) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("FLEDGE_")}
    env |= {"HOME": str(tmp_path), "FLEDGE_CONFIG": str(tmp_path)}
    (tmp_path / "work").mkdir()
    given = [place, url] if place.startswith("-") else []
    model = ["--set", "agents.defaults.model=scripted/echo"] if line[0] in ("run", "worker", "chat", "serve") else []
    done = command.fledge(*line, *given, *model, cwd=tmp_path / "work", env=env | ({} if given else {place: url}))
    assert done.returncode == 1
    assert SECRET not in done.stdout + done.stderr
    said = done.stdout + done.stderr
    assert "127.0.0.1:1/nest" in said or "must be an address" in said


def test_a_folder_a_store_and_a_gateway_are_not_mixed_up(desk: Desk) -> None:
    refused = desk.do("ps", "--store", desk.url, "--gateway", "http://127.0.0.1:1")
    assert "--gateway: cannot stand beside --store" in refused.stderr
    refused = desk.do("ps", FLEDGE_STORE=desk.url, FLEDGE_GATEWAY="http://127.0.0.1:1")
    assert "FLEDGE_GATEWAY: cannot be set beside FLEDGE_STORE" in refused.stderr
    # An option counts more than a variable.
    assert "no fledge.db there" in desk.do("ps", "--state", "nowhere", FLEDGE_STORE=desk.url).stderr
    assert "has no store" in desk.do("ps", "--store", desk.url, FLEDGE_GATEWAY="http://127.0.0.1:1").stderr


WITHOUT = """
import sys
sys.modules["psycopg"] = None
from fledge.cli.main import main
sys.exit(main(["ps", "--store", "postgresql://host/nest"]))
"""


def test_a_store_without_the_library_says_what_to_install(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "fledge: a store on PostgreSQL needs its library: pip install 'fledge[postgres]'\n"


@proves(
    "7.server.18",
    "All processes of a store on a server use the same folder for files, at the same path, or are refused",
)
def test_a_folder_that_has_not_the_files_of_the_store_is_refused(desk: Desk, tmp_path: Path) -> None:
    here = ["--store", desk.url, "--state"]
    assert desk.do("run", "hello", *here, str(tmp_path / "files")).returncode == 0
    for line in (["run", "hello"], ["kill", "x"], ["doctor", "--offline"]):
        done = desk.do(*line, *here, str(tmp_path / "others"))
        said = done.stdout + done.stderr
        assert re.search(rf"the files of postgresql://\S+ are in {tmp_path}/files on \S+, and .*/others", said), said
    # What only reads needs no files.
    assert "hello" in desk.do("log", *here, str(tmp_path / "others")).stdout
    assert desk.do("run", "hello", *here, str(tmp_path / "files")).returncode == 0
    (tmp_path / "files").rename(tmp_path / "moved")
    done = desk.do("run", "hello", *here, str(tmp_path / "moved"))
    assert f"must be mounted here at {tmp_path}/files, too, and not at {tmp_path}/moved" in done.stderr


@proves("7.server.18")
def test_files_that_were_moved_are_found_again_by_a_command(desk: Desk, tmp_path: Path) -> None:
    desk.told("run", "hello", "--state", str(tmp_path / "files"))
    held = PostgresStore.open(desk.url, alone=False)
    refused = desk.do("store", "files", desk.url, str(tmp_path / "moved"))
    assert (refused.returncode, "is in use by another process" in refused.stderr) == (1, True)
    asyncio.run(held.close())
    assert desk.do("store", "files", desk.url, str(tmp_path / "moved")).stdout.endswith(
        f" are in {tmp_path}/moved from now on\n"
    )
    assert desk.told("run", "hello", "--quiet", "--state", str(tmp_path / "moved")) == "hello\n"
    assert "another folder" in desk.do("run", "hi", "--store", desk.url, "--state", str(tmp_path / "files")).stderr
    refused = desk.do("store", "files", "nowhere", str(tmp_path / "moved"))
    assert "source: must be the address of a store" in refused.stderr


@proves("7.server.18")
def test_processes_of_a_store_use_its_folder_at_once_and_keep_a_database_out_of_it(desk: Desk, tmp_path: Path) -> None:
    files = tmp_path / "files"
    desk.told("run", "hello", "--state", str(files))

    async def main() -> None:
        stores = [PostgresStore.open(desk.url, folder=files, alone=False) for _ in range(2)]
        (files / "store").unlink()  # as if it had never been a folder of a server
        with pytest.raises(StoreLocked):
            SqliteStore.open(files)
        for store in stores:
            await store.close()

    asyncio.run(main())
