"""One of the sandbox's tools: hands its name and arguments to the supervisor and copies the answer out.

Installed as ROOT/bin/systemctl and so on. It must start within milliseconds: no site, nothing imported but C modules.
Request: netstrings (name, folder, argument..) and then `.`. Answer: frames of type (o, e, x), 4 bytes length, data.
"""

import _socket
import posix
import sys

HERE = __file__.rpartition("/bin/")[0]


def main() -> None:
    name = sys.argv[0].rpartition("/")[2]
    folder = posix.open(HERE, posix.O_RDONLY | posix.O_DIRECTORY)
    link = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        # A socket's path holds 107 bytes at most; through the folder's descriptor the root may be as deep as it likes.
        link.connect(f"/proc/self/fd/{folder}/control")
    except OSError as error:
        posix.write(2, f"{name}: the sandbox has ended ({error.strerror})\n".encode())
        posix._exit(1)
    parts = [name, posix.getcwd(), *sys.argv[1:]]
    raw = [part.encode("utf-8", "surrogateescape") for part in parts]
    link.sendall(b"".join(b"%d:%s," % (len(part), part) for part in raw) + b".")
    held = b""
    while True:
        data = link.recv(65536)
        if not data:
            posix.write(2, f"{name}: the sandbox ended\n".encode())
            posix._exit(1)
        held += data
        while len(held) >= 5:
            size = 5 + int.from_bytes(held[1:5], "big")
            if len(held) < size:
                break
            kind, body, held = held[:1], held[5:size], held[size:]
            if kind == b"x":
                posix._exit(body[0])
            while body:
                try:
                    body = body[posix.write(1 if kind == b"o" else 2, body) :]
                except OSError:
                    posix._exit(1)


main()
