"""A small server with SGLang's endpoints: `server.py PORT MODEL MODE..`. Run as a unit by the tests.

Modes: ok; selfkill (ends by SIGKILL when it is asked to stop, as SGLang does); oom (dies while loading); deaf (never
listens); stubborn (ignores SIGTERM); mute (no token); key=K (asks for that Bearer key); crash=S (dies S seconds after
its first token); slow=S (listens after S seconds); ranks (two schedulers by their titles, of which the second dies
and is never asked for).
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
import time

PORT, MODEL, MODES = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
VALUES = dict(mode.split("=", 1) for mode in MODES if "=" in mode)


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers like a server that is up."""

    def reply(self, code: int, value: object) -> None:
        """One JSON answer."""
        body = json.dumps(value).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def refused(self) -> bool:
        """Whether the key was wrong (then it is answered)."""
        if "key" in VALUES and self.headers.get("Authorization") != f"Bearer {VALUES['key']}":
            self.reply(401, {"error": "key"})
            return True
        return False

    def do_GET(self) -> None:
        """Model and server info."""
        if self.refused():
            return
        if self.path == "/model_info":
            self.reply(200, {"model_path": MODEL})
        elif self.path == "/server_info":
            self.reply(200, {"model_path": MODEL, "context_length": 4096, "mem_fraction_static": 0.5})
        else:
            self.reply(404, {})

    def do_POST(self) -> None:
        """A token."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.refused():
            return
        if "mute" in MODES:
            self.reply(500, {"error": "no"})
        else:
            self.reply(200, {"text": "x", "meta_info": {"completion_tokens": 1}})
            if "crash" in VALUES:
                threading.Timer(float(VALUES.pop("crash")), lambda: os._exit(3)).start()

    def log_message(self, *args: object) -> None:
        """Quiet."""


if "selfkill" in MODES:
    signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
if "stubborn" in MODES:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
print(f"server_args=ServerArgs(model_path='{MODEL}', port={PORT})", flush=True)
if "oom" in MODES:
    print("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.", flush=True)
    sys.exit(1)
if "ranks" in MODES:
    wait = [sys.executable, "-c", "print(1, flush=True); import sys; sys.stdin.read()"]
    pipe = subprocess.PIPE
    ranks = [subprocess.Popen([*wait, f"sglang::scheduler_TP{n}"], stdin=pipe, stdout=pipe) for n in (0, 1)]
    for one in ranks:
        assert one.stdout is not None
        one.stdout.readline()
    # long enough to be seen alive
    threading.Timer(3.0, ranks[1].kill).start()
if "deaf" in MODES:
    time.sleep(3600)
time.sleep(float(VALUES.get("slow", 0)))
server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
print("The server is fired up and ready to roll!", flush=True)
server.serve_forever()
