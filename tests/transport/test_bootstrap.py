"""Installing and starting the host code: a real installer, real Pythons, a real SSH server with a sudo of our own."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ddtree_console.domain.spec import Host, Service
from ddtree_console.transport import archive, installer, python_of
from ddtree_console.transport.base import Transport, TransportError
from ddtree_console.transport.bootstrap import HostCode, Later, installer_text
from ddtree_console.transport.ssh import SshTransport
from tests.transport.conftest import SshBox

CODE = archive.build()
PYENV = Path("~/.pyenv/versions").expanduser()


def pythons(*versions: str) -> list[str]:
    """Those that this machine has."""
    return [str(path) for version in versions if (path := PYENV / version / "bin/python").exists()]


OLD, OLDEST = pythons("3.6.15", "3.8.18"), pythons("2.7.18", "3.6.15", "3.8.18")
FIT = [sys.executable, *pythons("3.9.18")]
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root's own copy is held to be root's")


def roots_file(folder: Path) -> Path:
    """Roots below that folder."""
    path = folder / "roots.json"
    path.write_text(json.dumps({name: str(folder / name) for name in ("etc", "run", "var")}))
    return path


def run_installer(python: str, roots: Path, text: bytes | None = None) -> dict[str, Any]:
    """The installer as the stdin of that Python."""
    text = installer_text(CODE, str(roots)) if text is None else text
    done = subprocess.run([python, "-"], input=text, capture_output=True, check=False, cwd="/")
    assert done.stderr == b"", done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def start(where: str, roots: Path, python: str = sys.executable) -> subprocess.CompletedProcess[bytes]:
    """The installed host code's hello."""
    return subprocess.run(
        [python, "-I", "-B", where, f"--roots={roots}", "hello"], capture_output=True, check=False, cwd="/"
    )


@pytest.mark.parametrize("python", FIT)
def test_it_installs_once_and_starts(tmp_path: Path, python: str) -> None:
    roots = roots_file(tmp_path)
    answer = run_installer(python, roots)
    where = tmp_path / "var/bin" / CODE.hash
    assert (answer["installed"], answer["where"], answer["note"]) == (CODE.hash, str(where), "")
    stamp = (where / "pynvml.py").stat().st_mtime_ns
    assert run_installer(python, roots) == answer
    assert (where / "pynvml.py").stat().st_mtime_ns == stamp
    assert where.stat().st_mode & 0o777 == 0o755
    hello = json.loads(start(str(where), roots, python).stdout)
    assert (hello["hash"], hello["where"]) == (CODE.hash, str(where))
    assert [p.name for p in (tmp_path / "var/bin").iterdir()] == [CODE.hash]


@pytest.mark.parametrize("python", OLDEST)
def test_the_installer_says_to_an_old_python_that_it_is_old(tmp_path: Path, python: str) -> None:
    answer = run_installer(python, roots_file(tmp_path))
    assert answer["old"] is True
    assert "too old: 3.9 or newer" in answer["error"]


@pytest.mark.parametrize("python", OLD)
def test_the_host_code_says_so_too(tmp_path: Path, python: str) -> None:
    folder = tmp_path / "code"
    installer.write(folder, CODE.files)
    assert b"too old: 3.9 or newer" in start(str(folder), roots_file(tmp_path), python).stderr


def test_a_copy_that_somebody_changed_is_refused(tmp_path: Path) -> None:
    roots = roots_file(tmp_path)
    where = Path(str(run_installer(sys.executable, roots)["where"]))
    (where / "ddtree_console/hostside/watch.py").write_text("print('mine')")
    answer = run_installer(sys.executable, roots)
    assert "watch.py is not what was installed" in answer["error"]
    assert f"rm -r {where}" in answer["next"]


@as_root
def test_root_runs_nothing_that_others_can_write(tmp_path: Path) -> None:
    roots = roots_file(tmp_path)
    (tmp_path / "var").mkdir()
    (tmp_path / "var").chmod(0o777)
    answer = run_installer(sys.executable, roots)
    assert answer["error"] == f"{tmp_path / 'var'} can be written by others than root"
    (tmp_path / "var").chmod(0o755)
    assert "installed" in run_installer(sys.executable, roots)
    os.chown(tmp_path / "var/bin", 65534, 65534)
    assert f"{tmp_path / 'var/bin'} can be" in run_installer(sys.executable, roots)["error"]


@as_root
@pytest.mark.parametrize(("code", "said"), [(errno.ENOSPC, "disk full"), (errno.EROFS, "read-only file system")])
def test_a_disk_that_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, said: str) -> None:
    roots = roots_file(tmp_path)
    real = installer.write

    def write(folder: Path, files: dict[str, bytes]) -> None:
        if folder.is_relative_to(tmp_path / "var"):
            (folder / "half").write_text("x")
            raise OSError(code, os.strerror(code))
        real(folder, files)

    monkeypatch.setattr(installer, "write", write)
    answer = installer.install(CODE.data, CODE.hash, str(roots))
    assert answer["where"] == str(tmp_path / "run/ddtree-console/bin" / CODE.hash)
    assert said in str(answer["note"])
    assert list((tmp_path / "var/bin").iterdir()) == []
    monkeypatch.setattr(installer, "write", lambda *_: (_ for _ in ()).throw(OSError(code, "x")))
    shutil.rmtree(tmp_path / "run")
    with pytest.raises(installer.Refused, match=said):
        installer.install(CODE.data, CODE.hash, str(roots))


def test_an_archive_that_would_leave_its_folder_is_refused() -> None:
    for name in ("../x", "/etc/x"):
        with pytest.raises(installer.Refused, match="odd archive member"):
            installer.files_of(archive.pack({name: b""}))


SUDO = """#!/bin/sh
# sudo -n CMD..: as the file `sudo` in this folder says
here=$(dirname "$0")
case $(cat "$here/mode") in
password) echo "sudo: a password is required" >&2; exit 1;;
esac
shift
echo "$@" >> "$here/as-root"
exec "$@"
"""


class Rig:
    """A host behind the SSH server, with shims in PATH."""

    def __init__(self, box: SshBox) -> None:
        self.box = box
        self.bin = box.folder / "bin"
        self.bin.mkdir()
        self.roots = roots_file(box.folder)
        self.box.env.update(PATH=f"{self.bin}:/usr/bin:/bin", HOME=str(box.folder))
        self.python(sys.executable)
        self.sudo("yes")
        self.host = box.host(roots=str(self.roots), services=(Service("box", "a", "a.service", 1),))
        self.transport = SshTransport(self.host)

    def python(self, *argv: str) -> None:
        """What `python3` runs there."""
        self.tool("python3", f'#!/bin/sh\nexec {" ".join(argv)} "$@"\n')

    def tool(self, name: str, text: str) -> None:
        """A program first in PATH."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def only(self, *tools: str) -> None:
        """Nothing in PATH but the shims and these."""
        self.box.env["PATH"] = str(self.bin)
        for tool in tools:
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)

    def sudo(self, mode: str) -> None:
        """yes | password | none."""
        (self.bin / "mode").write_text(mode)
        (self.bin / "sudo").unlink(missing_ok=True)
        if mode != "none":
            self.tool("sudo", SUDO)

    async def hello(self, code: HostCode) -> dict[str, Any]:
        """Starts hello as services do: mends until it answers."""
        while True:
            done = await self.transport.run(code.argv("hello"))
            if done.stdout:
                answer: dict[str, Any] = json.loads(done.stdout)
                return answer
            assert done.status is not None
            await code.repair(self.transport, done.status, done.stderr)


@pytest.fixture
async def rig(box: SshBox) -> Any:
    """A connected rig."""
    made = Rig(box)
    await made.transport.connect()
    yield made
    await made.transport.close()


async def test_a_first_start_installs_with_sudo_and_the_next_one_does_not(rig: Rig) -> None:
    code = HostCode(rig.host, CODE)
    assert (await rig.hello(code))["where"] == str(rig.box.folder / "var/bin" / CODE.hash)
    assert (code.privileged, code.why) == (True, "")
    log = rig.bin / "as-root"
    assert "-I -\n" in log.read_text()
    log.unlink()
    await rig.hello(HostCode(rig.host, CODE))
    assert len(log.read_text().splitlines()) == 1


async def test_without_sudo_it_is_read_only_from_the_users_cache(rig: Rig) -> None:
    rig.sudo("password")
    code = HostCode(rig.host, CODE)
    hello = await rig.hello(code)
    assert (code.privileged, code.why) == (False, "sudo refused (a password is required)")
    assert "sudo" not in code.argv("watch")
    if os.geteuid() != 0:
        assert hello["where"] == str(rig.box.folder / ".cache/ddtree-console/bin" / CODE.hash)
    assert not (rig.bin / "as-root").exists()


async def test_a_host_without_sudo_may_still_be_roots(rig: Rig) -> None:
    rig.sudo("none")
    rig.only("dirname", "cat", "sh")
    code = HostCode(rig.host, CODE)
    await rig.hello(code)
    assert (code.privileged, code.why) == (True, "sudo is not installed")


def test_sudo_and_the_users_cache_never_meet() -> None:
    code = HostCode(Host("h", "h", user="ops"), CODE)
    assert code.argv("watch")[:3] == ["sudo", "-n", "python3"]
    code._drop_sudo("sudo: a password is required")
    assert code.argv("watch")[0] == "python3"
    assert code.argv("watch")[3].startswith(".cache/")
    assert HostCode(Host("h", "h", user="root"), CODE).argv("tx", "a.service")[-2:] == ["tx", "a.service"]


@pytest.mark.parametrize("missing", ["gone", "old"])
@pytest.mark.skipif(not Path("/usr/bin/python3").exists(), reason="needs the system's own python3 as the other one")
async def test_another_interpreter_where_python3_is_not_fit(rig: Rig, missing: str) -> None:
    if missing == "gone":
        (rig.bin / "python3").unlink()
        rig.only("dirname", "cat", "sh", "readlink", "stat")
    elif OLD:
        rig.python(OLD[-1])
    else:
        pytest.skip("no old Python here")
    found = "/usr/bin/python3"
    rig.tool("systemctl", f'#!/bin/sh\necho "ExecStart={{ path={found} ; argv[]={found} -m x ; }}"\n')
    code = HostCode(rig.host, CODE)
    await rig.hello(code)
    assert found in code.argv("watch")


async def test_no_interpreter_at_all(rig: Rig) -> None:
    (rig.bin / "python3").unlink()
    rig.only("dirname", "cat", "sh")
    with pytest.raises(TransportError) as caught:
        await rig.hello(HostCode(rig.host, CODE))
    assert caught.value.kind == "config"
    assert "install python3" in caught.value.next_step


async def test_a_refused_install_is_told_with_its_next_step(rig: Rig) -> None:
    where = rig.box.folder / "var/bin" / CODE.hash
    where.mkdir(parents=True)
    with pytest.raises(TransportError) as caught:
        await rig.hello(HostCode(rig.host, CODE))
    assert "is not what was installed" in caught.value.cause
    assert f"rm -r {where}" in caught.value.next_step


async def test_a_host_code_that_dies_is_not_installed_again_and_again(rig: Rig) -> None:
    rig.python("sh", "-c", "'echo Illegal instruction >&2; exit 132'")
    with pytest.raises(TransportError) as caught:
        await rig.hello(HostCode(rig.host, CODE))
    assert "Illegal instruction" in caught.value.cause


@as_root
async def test_only_interpreters_that_root_alone_can_change(rig: Rig) -> None:
    transport: Transport = rig.transport
    folder = rig.box.folder / "venv"
    folder.mkdir(mode=0o755)
    (folder / "python3").symlink_to("/usr/bin/python3")
    loose = [p for p in folder.parents if p.stat().st_mode & 0o022]
    assert await python_of.roots_own(transport, "/usr/bin/python3")
    # pytest's folder may lie below a folder that others can write, as /tmp is
    assert await python_of.roots_own(transport, str(folder / "python3")) == (not loose)
    folder.chmod(0o777)
    assert not await python_of.roots_own(transport, str(folder / "python3"))
    folder.chmod(0o755)
    os.chown(folder, 65534, 65534)
    assert not await python_of.roots_own(transport, str(folder / "python3"))


def test_code_that_is_made_when_it_is_asked_for_is_the_code_that_was_named() -> None:
    made = [archive.build(), archive.build()]
    later = Later(lambda: made.pop(0))
    assert (later.hash, later.data) == (CODE.hash, CODE.data)
    changed = [archive.build(), archive.build([{"id": "another"}])]
    with pytest.raises(TransportError, match="start the console again"):
        Later(lambda: changed.pop(0)).data  # noqa: B018
