"""Whether a process of this machine is dead: said only where it is certain."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fledge.store.processes import born, this_command, this_machine

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux says when a process began")
WAITING = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()"]


def test_this_process_is_known_by_its_machine_and_when_it_began() -> None:
    machine = this_machine()
    assert Path("/proc/sys/kernel/random/boot_id").read_text().strip() in machine
    assert os.readlink("/proc/self/ns/pid") in machine
    assert (born(os.getpid()) or "").isdigit()
    assert int(born(os.getpid()) or 0) >= int(born(os.getppid()) or 0)


def test_processes_of_a_machine_agree_on_it_and_on_each_other() -> None:
    code = "import os; from fledge.store.processes import *; print(this_machine(), born(os.getppid()), sep='|')"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert told == f"{this_machine()}|{born(os.getpid())}"


def test_a_process_is_gone_once_it_is_dead_also_before_its_parent_has_noticed() -> None:
    with subprocess.Popen(WAITING, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        assert born(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet taken note of
        assert born(process.pid) == ""
        process.wait()
        assert born(process.pid) == ""


def test_a_process_whose_name_is_hostile_is_read(tmp_path: Path) -> None:
    program = tmp_path / "x) Z 1 (y"
    program.write_bytes(Path("/bin/cat").read_bytes())
    program.chmod(0o700)
    with subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(b"a\n")
        process.stdin.flush()
        process.stdout.readline()
        assert int(born(process.pid) or 0) >= int(born(os.getpid()) or 0)
        process.kill()


@pytest.mark.parametrize("pid", [2**31 - 1, 2**70])
def test_a_pid_that_no_process_has_is_gone_or_not_certain(pid: int) -> None:
    assert not born(pid)


def test_the_command_is_said_without_its_options(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []
    for line in (["/usr/bin/fledge", "worker", "--store", "x"], ["/opt/app.py", "--password", "x"], [""], []):
        monkeypatch.setattr(sys, "argv", line)
        told.append(this_command())
    assert told == ["fledge worker", "app.py", "python", "python"]
