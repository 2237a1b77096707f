"""Lab tests run only where real hosts can: elsewhere they are skipped with the reason, in CI that is an error."""

from __future__ import annotations

import os

import pytest

from tests.lab.runner import inside, why_not

pytest_plugins = ("tests.lab.fixtures",)


def _no_lab() -> str | None:
    if inside():
        return None
    return why_not() or "not inside the lab: python tests/lab/lab.py run python -m pytest ..."


@pytest.hookimpl(trylast=True)  # after -m has dropped what was not asked for
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips lab tests with the reason; UsageError where CI or LAB_REQUIRED says that they must run."""
    lab_items = [item for item in items if item.get_closest_marker("lab")]
    reason = _no_lab() if lab_items else None
    if reason is None:
        return
    if os.environ.get("CI") == "true" or os.environ.get("LAB_REQUIRED"):
        raise pytest.UsageError(f"the lab is required here but cannot run: {reason}")
    for item in lab_items:
        item.add_marker(pytest.mark.skip(reason=f"no lab: {reason}"))
