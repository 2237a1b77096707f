"""`python -m ddtree_console.cli`."""

from __future__ import annotations

import sys

from ddtree_console.cli import main

sys.exit(main())
