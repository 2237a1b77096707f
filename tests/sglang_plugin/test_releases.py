"""The table of names against the stock wheel, read by ast; and the check of it against modules that are there."""

from __future__ import annotations

import ast
import sys
import types
from pathlib import Path

import pytest

from ddtree_kernels.sglang_plugin import releases, signatures
from ddtree_kernels.sglang_plugin.releases import Call, Fields
from tests.sglang_plugin.conftest import RELEASE

TABLE = releases.TESTED[RELEASE]


def module(stock: Path, dotted: str) -> ast.Module:
    """The parsed module; a package's own __init__ where it is one."""
    base = stock.joinpath(*dotted.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    return ast.parse(path.read_text("utf-8"))


def inside(stock: Path, path: str) -> ast.stmt:
    """The definition at `module:Name.attribute`; AssertionError where it is not."""
    dotted, _, names = path.partition(":")
    body = module(stock, dotted).body
    node: ast.stmt | None = None
    for name in names.split("."):
        node = next((n for n in body if getattr(n, "name", None) == name), None)
        assert node is not None, f"{path}: no {name}"
        body = getattr(node, "body", [])
    assert node is not None
    return node


def parameters(node: ast.stmt) -> tuple[str, ...]:
    """As inspect.signature names them; a classmethod's cls is left out as it does."""
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    a = node.args
    names = [x.arg for x in (*a.posonlyargs, *a.args)]
    if any(isinstance(d, ast.Name) and d.id == "classmethod" for d in node.decorator_list):
        names = names[1:]
    names += [a.vararg.arg] if a.vararg else []
    names += [x.arg for x in a.kwonlyargs]
    return (*names, *([a.kwarg.arg] if a.kwarg else []))


def known_fields(node: ast.stmt) -> set[str]:
    """Names annotated or assigned in the class, its properties and methods, and self.NAME set in any of them."""
    names = set()
    for child in ast.walk(node):
        if isinstance(child, ast.AnnAssign) and isinstance(child.target, ast.Name):
            names.add(child.target.id)
        elif isinstance(child, ast.FunctionDef):
            names.add(child.name)
        elif (
            isinstance(child, ast.Attribute) and isinstance(child.ctx, ast.Store) and ast.unparse(child.value) == "self"
        ):
            names.add(child.attr)
    return names


@pytest.mark.parametrize("row", [*TABLE.calls, *TABLE.late], ids=lambda row: row.path.partition(":")[2])
def test_calls_of_the_wheel(row: Call, stock: Path) -> None:
    assert parameters(inside(stock, row.path)) == row.parameters


@pytest.mark.parametrize("row", TABLE.fields, ids=lambda row: row.path.partition(":")[2])
def test_fields_of_the_wheel(row: Fields, stock: Path) -> None:
    assert set(row.names) - known_fields(inside(stock, row.path)) == set()


def test_every_name_imported_from_stock_is_in_the_table() -> None:
    """A name that the plug-in imports and the table does not hold would not be checked."""
    held = {row.path.split(".")[-1] if ":" not in row.path else row.path for row in (*TABLE.calls, *TABLE.late)}
    roots = {path.replace(":", ".").rpartition(".")[0] if "." in path.partition(":")[2] else path.replace(":", ".")
             for path in held}  # fmt: skip
    roots |= {row.path.replace(":", ".") for row in TABLE.fields}
    plain = {"sglang.srt.model_executor.forward_batch_info.CaptureHiddenMode",
             "sglang.srt.model_executor.forward_batch_info.ForwardMode",
             "sglang.srt.plugins.hook_registry.HookType"}  # fmt: skip
    folder = Path(releases.__file__).parent
    for path in folder.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sglang."):
                for name in (f"{node.module}.{alias.name}" for alias in node.names):
                    assert name in roots | plain, f"{path.name}: {name}"


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """An importable module with one function and one class."""
    made = types.ModuleType("pl_fake_stock")

    class Thing:
        def verify(self, *, batch: object, page_size: int) -> None:
            """Nothing."""

    made.Thing = Thing  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pl_fake_stock", made)
    return made


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (Call("pl_fake_stock:Thing.verify", ("self", "batch", "page_size")), ""),
        (
            Call("pl_fake_stock:Thing.verify", ("self", "batch")),
            "pl_fake_stock:Thing.verify takes self, batch, page_size",
        ),
        (Call("pl_fake_stock:Thing.gone", ("self",)), "pl_fake_stock:Thing.gone is not there"),
        (Call("pl_no_such:Thing", ()), "pl_no_such:Thing is not there"),
    ],
)
def test_a_difference_is_told(call: Call, said: str, fake: types.ModuleType) -> None:
    assert signatures.differs(call).startswith(said) and bool(signatures.differs(call)) is bool(said)
    assert signatures.problems([call]) == ([signatures.differs(call)] if said else [])


@pytest.mark.parametrize("version", ["0.5.13", "0.5.12.post1", "0.5.12rc1", "0.5.23", "", "0.5.1"])
def test_other_releases_are_refused(version: str) -> None:
    assert "is not among the tested releases (0.5.12)" in signatures.unsupported(version)
    assert signatures.unsupported("0.5.12") == "" == signatures.unsupported("0.5.12+cu130")
