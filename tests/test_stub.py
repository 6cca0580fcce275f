"""The stub of the C extension is the one that scripts/make_stub.py would write now."""
from __future__ import annotations

import ast
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parent.parent


def test_stub_is_fresh():
    got = subprocess.run([sys.executable, str(ROOT / "scripts" / "make_stub.py"), "--check"], capture_output=True, text=True, check=False)
    assert got.returncode == 0, got.stderr


def test_stub_names_every_operator():
    import rushlight as rl
    tree = ast.parse((ROOT / "python" / "rushlight" / "_C.pyi").read_text())
    functions = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
    tensor = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Tensor")
    methods = {n.name for n in tensor.body if isinstance(n, ast.FunctionDef)}
    assert set(rl._C._functions) <= functions
    assert {n for n, v in vars(rl.Tensor).items() if type(v).__name__ in ("OpMethod", "method_descriptor")} <= methods
