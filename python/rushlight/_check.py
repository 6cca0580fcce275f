"""`rushlight check`: which of PyTorch's names a script uses and rushlight lacks, found without running it.

Reads the syntax tree: imports of torch and its submodules (under any name) and attribute chains on them. What a name is bound to at run time is
not followed, so methods of tensors are not seen; a name that is reported is certainly missing.
"""
from __future__ import annotations

import ast
import importlib
import json
import sys
from dataclasses import asdict, dataclass

from rushlight._missing import nearest


@dataclass(frozen=True)
class Finding:
    """One missing name: `name` as PyTorch spells it, with file and line, and the nearest name there is (or None)."""

    file: str
    line: int
    name: str
    nearest: str | None


def _module(name: str):
    """rushlight's module for torch.x.y, or None."""
    try:
        return importlib.import_module("rushlight" + name[5:])
    except ImportError:
        return None


def lookup(dotted: str) -> tuple[str, str | None] | None:
    """None when `dotted` (torch.a.b) exists, else the shortest prefix that does not and the nearest name to it."""
    here, at = _module("torch"), "torch"
    for part in dotted.split(".")[1:]:
        found = getattr(here, part, None)
        if found is None and part not in getattr(here, "__dict__", {}):
            found = _module(f"{at}.{part}")
        if found is None:
            return f"{at}.{part}", nearest(part, dir(here))
        here, at = found, f"{at}.{part}"
        if not isinstance(here, type(sys)) and not isinstance(here, type):
            break  # attributes of values are not followed
    return None


class _Names(ast.NodeVisitor):
    """Collects (line, dotted name) of everything that hangs on torch."""

    def __init__(self):
        self.bound: dict[str, str] = {}
        self.used: list[tuple[int, str]] = []

    def visit_Import(self, node: ast.Import) -> None:
        for a in node.names:
            if a.name == "torch" or a.name.startswith("torch."):
                self.bound[a.asname or "torch"] = a.name if a.asname else "torch"
                self.used.append((node.lineno, a.name))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        if node.level or not (node.module == "torch" or (node.module or "").startswith("torch.")):
            return
        for a in node.names:
            self.used.append((node.lineno, str(node.module) if a.name == "*" else f"{node.module}.{a.name}"))
            self.bound[a.asname or a.name] = f"{node.module}.{a.name}"

    def visit_Attribute(self, node: ast.Attribute) -> None:
        parts, value = [node.attr], node.value
        while isinstance(value, ast.Attribute):
            parts.append(value.attr)
            value = value.value
        if isinstance(value, ast.Name) and value.id in self.bound:
            self.used.append((node.lineno, ".".join([self.bound[value.id], *reversed(parts)])))
        else:
            self.generic_visit(node)


def check_source(source: str, file: str = "<script>") -> list[Finding]:
    """The missing names of one script, in order of lines. Raises SyntaxError."""
    names = _Names()
    names.visit(ast.parse(source, file))
    found: dict[tuple[str, int], Finding] = {}
    for line, dotted in names.used:
        missing = lookup(dotted)
        if missing:
            found.setdefault((missing[0], line), Finding(file, line, *missing))
    return sorted(found.values(), key=lambda f: (f.line, f.name))


def main(arguments: list[str]) -> int:
    """The command: 0 nothing is missing, 1 something is, 2 wrong use."""
    as_json = "--json" in arguments
    files = [a for a in arguments if a != "--json"]
    if not files or any(a.startswith("-") for a in files):
        print("usage: rushlight check [--json] SCRIPT.py ...", file=sys.stderr)
        return 0 if arguments and arguments[0] in ("-h", "--help") else 2
    findings: list[Finding] = []
    for file in files:
        try:
            with open(file, encoding="utf-8") as f:
                findings += check_source(f.read(), file)
        except (OSError, SyntaxError, ValueError) as e:
            print(f"rushlight check: {file}: {e}", file=sys.stderr)
            return 2
    if as_json:
        print(json.dumps({"schema": 1, "missing": [asdict(f) for f in findings]}, indent=1))
    else:
        for found in findings:
            hint = f"; the nearest name is {found.nearest}" if found.nearest else ""
            print(f"{found.file}:{found.line}: {found.name} is not in rushlight{hint}")
        print(f"missing names: {len(findings)}, files: {len(files)}", file=sys.stderr)
    return 1 if findings else 0
