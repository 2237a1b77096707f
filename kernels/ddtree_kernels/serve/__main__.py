"""`ddtree-wrapper`, also `python -m ddtree_kernels.serve`."""

from __future__ import annotations

import argparse
import socket
import sys
from collections.abc import Sequence

from ddtree_kernels.serve import arguments, paths, port
from ddtree_kernels.serve.log import say


def main(argv: Sequence[str] | None = None) -> int:
    """0 after a wanted end, 1 for what cannot be served (one line says why), 2 for a wrong command line."""
    args = arguments.parse(argv)
    shown = ", ".join(f"{name}={value!r}" for name, value in arguments.flags(args).items())
    say(f"server_args=ServerArgs({shown})")
    try:
        bound = port.reserve(args.host, args.port)
    except port.PortTaken as error:
        print(f"ERROR:    {error}", file=sys.stderr, flush=True)
        return 1
    try:
        return _serve(args, bound)
    except port.PortTaken as error:
        print(f"ERROR:    {error}", file=sys.stderr, flush=True)
    except ImportError as error:
        say(f"ImportError: {error}: pip install 'ddtree-console[serve]'")
    except Exception as error:
        if type(error).__module__.startswith("ddtree_kernels."):
            kind = "RuntimeError" if isinstance(error, RuntimeError) else type(error).__name__
            say(f"{kind}: {error}")
        else:
            raise
    return 1


def _serve(args: argparse.Namespace, bound: socket.socket) -> int:
    target, draft = paths.folders(args)
    from ddtree_kernels.serve.load import load
    from ddtree_kernels.serve.run import serve

    return serve(args, load(args, target, draft), bound)


if __name__ == "__main__":
    sys.exit(main())
