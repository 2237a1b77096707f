#!/usr/bin/python3
"""A small real HTTP service for the lab's own tests: demo_http.py PORT."""

import http.server
import sys


class Handler(http.server.BaseHTTPRequestHandler):
    """Answers every GET with the same JSON."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """200 and a line in the journal."""
        body = b'{"status":"ok"}\n'
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


port = int(sys.argv[1])
print("listening on", port, flush=True)
http.server.ThreadingHTTPServer(("0.0.0.0", port), Handler).serve_forever()
