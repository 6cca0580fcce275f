"""Rules of the text: layers, sizes, openings, languages, and the README's commands."""
from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
C_FILES = sorted(p for p in (ROOT / "csrc").rglob("*") if p.suffix in (".c", ".h"))
PY_FILES = sorted(p for d in ("python", "tests", "examples", "benchmarks") for p in (ROOT / d).rglob("*.py"))
READMES = [ROOT / "README.md", ROOT / "README.zh-CN.md"]


def includes(path):
    return re.findall(r'#include\s+[<"]([^>"]+)[>"]', path.read_text())


def layer(path):
    return path.relative_to(ROOT / "csrc").parts[0]


@pytest.mark.parametrize("path", C_FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_layers(path):
    here = layer(path)
    names = includes(path)
    if here != "py":
        assert "Python.h" not in names
    allowed = {"core": {"core"}, "ops": {"core", "ops"}, "cpu": {"core", "ops", "cpu"}, "py": {"core", "ops", "cpu", "py"}}[here]
    for name in names:
        target = (path.parent / name).resolve()
        if target.exists() and (ROOT / "csrc") in target.parents:
            assert layer(target) in allowed, f"{path.name} of {here} includes {name}"
            if here == "cpu" and layer(target) == "ops":
                assert target.name in ("args.h", "scalar.h", "op.h", "ops.def", "elementwise.def"), f"the CPU backend may not call operators: {name}"


def test_core_names_no_operator():
    operators = {"matmul", "softmax", "relu", "sigmoid", "cross_entropy", "layer_norm", "conv"}
    for path in C_FILES:
        if layer(path) == "core":
            code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
            code = re.sub(r'"[^"]*"', "", code)
            code = re.sub(r"#define RL_KERNEL_FAMILIES.*?\n\n", "", code, flags=re.S)  # families of kernels, not operators
            found = {w.lower() for w in re.findall(r"[A-Za-z_]+", code)} & operators
            assert not found, f"{path.name} names {found}"


@pytest.mark.parametrize("path", [*C_FILES, *PY_FILES], ids=lambda p: str(p.relative_to(ROOT)))
def test_size_and_opening(path):
    text = path.read_text()
    lines = text.split("\n")
    assert len(lines) <= 800 or path.name == "op_table.py", f"{len(lines)} lines"
    if text.strip() and not text.startswith(("# ", "#!")):
        start = text.lstrip()
        assert start.startswith(("/*", '"""', "'''", "// ")), "a file opens with what it owns"
    assert "\t" not in text.replace("\\t", "") or path.suffix == ".py"
    assert max(map(len, lines)) <= 200


def test_only_one_place_allocates_in_core_and_ops():
    for path in C_FILES:
        if layer(path) in ("core", "ops") and path.name not in ("alloc.c",):
            code = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.S)
            assert not re.search(r"\b(malloc|calloc|realloc)\s*\(", code), f"{path.name} allocates past alloc.c"
            assert not re.search(r"\b(abort|exit|assert)\s*\(", re.sub(r"static_assert|_Static_assert", "", code)), f"{path.name} may end the process"


def fenced(path, language):
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.S)


def test_readmes_agree():
    english, chinese = READMES
    assert english.read_text().split("\n")[0] == chinese.read_text().split("\n")[0]
    assert re.findall(r"^#+ ", english.read_text(), flags=re.M) == re.findall(r"^#+ ", chinese.read_text(), flags=re.M)
    for language in ("python", "sh", "c"):
        assert fenced(english, language) == fenced(chinese, language)
    table = [re.search(r"<!-- bench:begin -->.*<!-- bench:end -->", p.read_text(), re.S).group() for p in READMES]
    assert table[0] == table[1]


def test_ci_runs_the_readmes_lines():
    """The script takes them from the README itself."""
    lines = [b.strip() for b in fenced(READMES[0], "sh")[:2]]
    assert all("\n" not in line for line in lines) and "pip install '.[examples]'" in lines[0] and "-m pytest" in lines[1]
    script = r"""awk -v n="$1" '/^```sh/ {b++; getline; if (b == n) {print; exit}}' README.md"""
    assert script.replace("README.md", '"$ROOT/README.md"') in (ROOT / ".ci" / "run").read_text()
    for n, line in enumerate(lines, 1):
        got = subprocess.run(["bash", "-c", script, "x", str(n)], capture_output=True, text=True, cwd=ROOT).stdout.strip()
        assert got == line


def test_readme_example_runs():
    code = fenced(READMES[0], "python")[0]
    r = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    losses = [float(line.split()[1]) for line in r.stdout.splitlines()]
    assert r.returncode == 0 and len(losses) == 5 and losses == sorted(losses, reverse=True), r.stderr


def test_links_of_the_documents_exist():
    for path in [*READMES, ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").glob("*.md")]:
        for link in re.findall(r"\]\(([^)#:]+)\)", path.read_text()):
            assert (path.parent / link).exists(), f"{path.name} links to {link}"


def test_notebook_has_no_outputs_in_the_tree():
    notebook = json.loads((ROOT / "examples" / "digits.ipynb").read_text())
    assert all(not c.get("outputs") for c in notebook["cells"] if c["cell_type"] == "code")
