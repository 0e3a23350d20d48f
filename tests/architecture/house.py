"""The source of the package as data: its files and who imports whom."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "unisono"


@dataclass(frozen=True)
class Import:
    """One import statement, at the top of a file or inside a function.

    Args:
        importer: Dotted name of the importing module.
        imported: Dotted name of the imported module.
        where: "file:line" for messages.
    """

    importer: str
    imported: str
    where: str


@functools.cache
def files() -> list[Path]:
    """Returns all Python files of the package."""
    return sorted(PACKAGE.rglob("*.py"))


def module_of(path: Path) -> str:
    """Returns the dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def rooms() -> set[str]:
    """Returns the names of the modules and packages directly below the package."""
    return {module_of(path).split(".")[1] for path in files() if module_of(path) != "unisono"}


@functools.cache
def tree(path: Path) -> ast.Module:
    """Returns the parsed file."""
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports(path: Path) -> Iterator[Import]:
    """Finds all imports of a file, also those inside functions, for type checkers, and through importlib."""
    importer = module_of(path)
    modules = _modules()
    for node in ast.walk(tree(path)):
        where = f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(importer, alias.name, where)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{where}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield Import(importer, inner if inner in modules else str(node.module), where)
        elif isinstance(node, ast.Call) and _name(node.func).split(".")[-1] in ("import_module", "__import__"):
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    yield Import(importer, name, where)


@functools.cache
def _modules() -> set[str]:
    return {module_of(each) for each in files()}


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            return f"{_name(value)}.{attribute}"
    return ""


@functools.cache
def all_imports() -> list[Import]:
    """Returns the imports of all files."""
    return [each for path in files() for each in imports(path)]
