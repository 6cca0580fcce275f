"""CONTRIBUTING.md promises that an elementwise operator is two rows: this adds those rows to a copy of the tree and runs them."""
from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.slow
def test_two_rows_make_an_operator(tmp_path):
    tree = tmp_path / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", "build", "*.so", "__pycache__", ".venv", "golden", ".hypothesis"))
    text = (ROOT / "CONTRIBUTING.md").read_text()
    text = text[text.index("<!-- rows:begin -->"):text.index("<!-- rows:end -->")]
    (c_row,), (py_row,) = re.findall(r"```c\n(.*?)\n```", text, re.S), re.findall(r"```python\n(.*?)\n```", text, re.S)
    table = tree / "csrc" / "ops" / "elementwise.def"
    table.write_text(table.read_text().replace("UNARY(exp,", c_row + "\nUNARY(exp,", 1))
    rows = tree / "tests" / "op_table.py"
    rows.write_text(rows.read_text().replace("UNARY_ROWS = [\n", f"UNARY_ROWS = [\n    {py_row},\n", 1))
    env = {**os.environ, "RUSHLIGHT_LEVELS": "baseline", "RUSHLIGHT_DEBUG": "1", "PYTHONPATH": str(tree / "python")}
    for command in ([sys.executable, "setup.py", "-q", "build_ext", "--inplace"],
                    [sys.executable, "-m", "pytest", "tests/test_ops.py", "-k", "softabs"]):
        r = subprocess.run(command, cwd=tree, env=env, capture_output=True, text=True)
        assert r.returncode == 0, r.stdout[-3000:] + r.stderr[-3000:]
    assert int(re.search(r"(\d+) passed", r.stdout).group(1)) >= 20
    r = subprocess.run([sys.executable, "-c", "import rushlight as rl; x = rl.tensor([3.0]); x.softabs_(); print(x, rl.softabs(rl.zeros(1), out=rl.empty(1)))"],
                       env=env, capture_output=True, text=True, cwd=tmp_path)
    assert "2.1623" in r.stdout, r.stderr
