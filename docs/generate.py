"""Writes the pages of this folder that come from the code: environment.md and reference.md.

python docs/generate.py            write them
python docs/generate.py --check    say which ones are stale, and fail if one is
"""

from __future__ import annotations

import argparse
import ast
import enum
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import unisono
import unisono.data
from unisono import env
from unisono.data.distributed import InputContext

HERE = Path(__file__).parent
SECTIONS = ("Args", "Returns", "Raises", "Yields", "Attributes")
NOT_TO_BE_CALLED: dict[type, bool] = {unisono.data.FileDataset: False, InputContext: True}
"""Classes whose objects a user gets, and whether their arguments are attributes for users."""
FOR_SOURCES: dict[type, tuple[str, ...]] = {unisono.data.FileDataset: ("blocks", "stream", "in_line")}
"""Methods without an underscore that are no part of the public face: they read for the workers."""


def environment_page() -> str:
    """Returns the page of the environment variables: our own first, then those of other programs."""
    ours = [each for each in env.VARIABLES.values() if each.owner == "unisono"]
    others = [each for each in env.VARIABLES.values() if each.owner != "unisono"]
    lines = [
        "# Environment variables",
        "",
        "Written by `make docs` from the table in `src/unisono/env.py`, the only file that reads or sets them.",
        "What a script says in code wins over a variable. A *flag* is 0 or 1.",
        "",
        "## Of Unisono",
        "",
        "| variable | kind | default | meaning |",
        "|---|---|---|---|",
    ]
    for each in ours:
        lines.append(f"| `{each.name}` | {each.kind} | {_default(each)} | {_cell(each.meaning)} |")
    lines += [
        "",
        "## Of other programs, read or set here",
        "",
        "| variable | of | kind | meaning |",
        "|---|---|---|---|",
    ]
    for each in others:
        lines.append(f"| `{each.name}` | {each.owner} | {each.kind} | {_cell(each.meaning)} |")
    return "\n".join(lines) + "\n"


def _default(variable: env.Variable) -> str:
    return "-" if variable.default is None else f"`{variable.default}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def reference_page() -> str:
    """Returns the page of the public names: classes, functions and those of `unisono.data`, then exceptions."""
    names = [name for name in unisono.__all__ if not name.startswith("__")]
    functions = [name for name in names if inspect.isfunction(getattr(unisono, name))]
    classes = [name for name in names if name not in functions]
    exceptions = [name for name in classes if issubclass(getattr(unisono, name), Exception)]
    lines = ["# Reference", "", "Written by `make docs` from the docstrings.", ""]
    for name in sorted(
        set(classes) - set(exceptions), key=lambda name: ("Strategy" not in name, "Options" not in name, name)
    ):
        lines += _class(f"unisono.{name}", getattr(unisono, name))
    lines += ["## `InputContext`", "", "What `strategy.distribute_datasets_from_function` gives to its function.", ""]
    lines += _made_elsewhere(InputContext)
    for name in functions:
        lines += _function(f"unisono.{name}", getattr(unisono, name))
    names = sorted(unisono.data.__all__, key=lambda name: (not name.islower(), name != "FileDataset", name))
    for name in names:
        thing = getattr(unisono.data, name)
        lines += (_function if inspect.isfunction(thing) else _class)(f"unisono.data.{name}", thing)
    lines += ["## Exceptions", "", "When they are raised and what to do: [errors.md](errors.md).", ""]
    for name in sorted(exceptions, key=lambda name: (len(getattr(unisono, name).__mro__), name)):
        lines += _exception(name, getattr(unisono, name))
    return "\n".join(lines).rstrip() + "\n"


def _exception(name: str, cls: type) -> Iterator[str]:
    bases = " and ".join(f"`{base.__name__}`" for base in cls.__bases__)
    yield from (f"### `unisono.{name}`", "", f"Derived from {bases}.", "", *_docstring(cls), "")


def _function(name: str, function: Callable[..., object]) -> Iterator[str]:
    yield from (f"## `{name}`", "", "```text", *_call(name, function), "```", "", *_docstring(function), "")


def _class(name: str, cls: type) -> Iterator[str]:
    yield from (f"## `{name}`", "")
    if issubclass(cls, enum.Enum):
        yield from (*_docstring(cls), "")
        said = _words_below(cls)
        for member in cls.__members__:
            yield f"- `{cls.__name__}.{member}`" + (f": {said[member]}" if member in said else "")
        yield ""
    elif cls in NOT_TO_BE_CALLED:
        yield from _made_elsewhere(cls)
    else:
        yield from ("```text", *_call(name, cls), "```", "", *_docstring(cls), "", *_methods(cls))


def _made_elsewhere(cls: type) -> Iterator[str]:
    """A class whose objects a user gets and does not make: no call, and of its arguments those that are for users."""
    summary, _, arguments = (inspect.getdoc(cls) or "").partition("\n\nArgs:\n")
    yield from (summary, "")
    if NOT_TO_BE_CALLED[cls]:
        yield from (*_markdown(f"Attributes:\n{arguments}"), "")
    yield from _methods(cls)


def _methods(cls: type) -> Iterator[str]:
    for attribute, value in sorted(_members(cls)):
        documented = value.fget if isinstance(value, property) else value
        parameters = "" if isinstance(value, property) else f"({', '.join(_parameters(value))})"
        yield from (f"### `{cls.__name__}.{attribute}{parameters}`", "", *_docstring(documented), "")


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    for base in reversed(cls.__mro__):
        if base.__module__.split(".")[0] == "unisono":
            for attribute, value in vars(base).items():
                hidden = attribute.startswith("_") or attribute in FOR_SOURCES.get(cls, ())
                if not hidden and (isinstance(value, property) or inspect.isfunction(value)):
                    yield attribute, vars(cls).get(attribute, value)


def _words_below(cls: type) -> dict[str, str]:
    """Returns what stands as a string below each member of an enumeration, which Python does not keep."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    said = {}
    for member, words in itertools.pairwise(getattr(tree, "body", [])):
        match member, words:
            case ast.Assign(targets=[ast.Name(id=name)]), ast.Expr(value=ast.Constant(value=str(text))):
                said[name] = " ".join(text.split())
    return said


def _call(name: str, thing: Callable[..., object]) -> list[str]:
    return [f"{name}(", *(f"    {each}," for each in _parameters(thing)), ")"]


def _parameters(thing: Callable[..., object]) -> Iterator[str]:
    parameters = [each for each in inspect.signature(thing).parameters.values() if each.name != "self"]
    starred = False
    for each in parameters:
        if each.kind is each.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        starred = starred or each.kind is each.VAR_POSITIONAL
        stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
        text = f"{stars}{each.name}" if each.annotation is each.empty else f"{stars}{each.name}: {each.annotation}"
        default = each.default
        if isinstance(default, enum.Enum):
            text += f" = {type(default).__name__}.{default.name}"
        elif default is not each.empty:
            text += f" = {default!r}"
        yield text


def _docstring(thing: object) -> Iterator[str]:
    yield from _markdown(inspect.getdoc(thing) or "")


def _markdown(docstring: str) -> Iterator[str]:
    """Turns a docstring with Args, Returns and Raises into Markdown."""
    section = ""
    for line in docstring.splitlines():
        head = re.fullmatch(rf"({'|'.join(SECTIONS)}):", line)
        if head:
            section = head.group(1)
            yield f"**{section}**"
            yield ""
        elif not line.startswith(" ") and line:
            section = ""
            yield line
        elif section in ("Args", "Raises", "Attributes") and (item := re.fullmatch(r"    ([\w*, .]+): (.*)", line)):
            yield f"- `{item.group(1)}`: {item.group(2)}"
        elif section:
            yield textwrap.dedent(line) if section in ("Returns", "Yields") else f"  {line.strip()}".rstrip()
        else:
            yield line


PAGES: dict[str, Callable[[], str]] = {"environment.md": environment_page, "reference.md": reference_page}


def main() -> int:
    """Writes or checks the pages; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if a page is stale")
    check = parser.parse_args().check
    stale = 0
    for name, page in PAGES.items():
        path, text = HERE / name, page()
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale += 1
        if check:
            print(f"docs/{name} is stale\nHint: make docs")
        else:
            path.write_text(text, encoding="utf-8")
            print(f"docs/{name} written")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
