"""`carry`: unpacks what a service's own user must read to OPT/HASH, root-owned, 0755. Once, and never overwritten."""

from __future__ import annotations

import base64
import binascii
import hashlib
import io
import os
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ddtree_console.hostside import durable, reply, request_json
from ddtree_console.hostside.roots import Roots


def files_of(data: bytes) -> dict[str, bytes]:
    """The archive's files. ValueError for one that would leave the folder."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(data)) as tar:
            for member in tar.getmembers():
                file = tar.extractfile(member)
                if file is None or member.name.startswith("/") or ".." in Path(member.name).parts:
                    raise ValueError(f"odd archive member {member.name}")
                found[member.name] = file.read()
    except tarfile.TarError as error:
        raise ValueError(f"not an archive: {error}") from error
    return found


def differs(folder: Path, files: Mapping[str, bytes]) -> str:
    """The first file that is not what it should be, or that nobody carried there; '' for none."""
    for name, data in files.items():
        path = folder / name
        if path.is_symlink() or not path.is_file() or path.read_bytes() != data:
            return name
    more = (str(p.relative_to(folder)) for p in folder.rglob("*.py") if str(p.relative_to(folder)) not in files)
    return next(more, "")


def unpack(roots: Roots, name: str, files: Mapping[str, bytes]) -> Path:
    """OPT/NAME. OSError; ValueError where it is there and differs."""
    base = Path(roots.opt)
    final = base / name
    if not final.exists():
        durable.make_dir(base)
        spare = Path(tempfile.mkdtemp(prefix=f".{name}.", dir=base))
        try:
            for member, data in files.items():
                durable.write_atomic(spare / member, data)
            spare.chmod(0o755)
            spare.rename(final)
            durable.sync_dir(base)
        except OSError:
            shutil.rmtree(spare, ignore_errors=True)
            if not final.exists():
                raise
    wrong = differs(final, files)
    if wrong:
        raise ValueError(f"{final}/{wrong} is not what was carried there")
    return final


def main(roots: Roots, args: list[str]) -> int:
    """{"ok": true, "path"}."""
    try:
        raw = request_json.read()
        data = base64.b64decode(str(raw.get("tar") or ""), validate=True)
        name = hashlib.sha256(data).hexdigest()[:16]
        if raw.get("hash") != name:
            raise ValueError(f"the archive's hash is {name}, not {raw.get('hash')}")
        files = files_of(data)
    except (ValueError, binascii.Error) as error:
        return reply.refuse(2, f"carry: {error}", "use a console of this version")
    if os.geteuid() != 0 and not roots.path:
        return reply.refuse(7, f"{roots.opt} is root's", "allow `sudo -n` for this user")
    try:
        return reply.say({"ok": True, "path": str(unpack(roots, name, files))})
    except OSError as error:
        return reply.refuse(7, f"{roots.opt}: {error.strerror or error}", "make room, or make it writable")
    except ValueError as error:
        return reply.refuse(7, str(error), f"look who changed it, then: rm -r {roots.opt}/{name}")
