"""1,000 loops of each kind of work leave memory, live tensors and Python objects where they were."""
from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest
import rushlight

SCRIPT = pathlib.Path(__file__).parent / "isolated" / "leaks.py"
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(rushlight.__file__)))


@pytest.mark.parametrize("work", ["training_step", "functions", "errors", "double_backward", "custom_function", "files", "loader", "wrappers"])
def test_flat(work):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])}
    r = subprocess.run([sys.executable, str(SCRIPT), work], capture_output=True, text=True, env=env, timeout=300)
    assert r.returncode == 0, r.stderr
    resident, live, blocks = map(int, r.stdout.split())
    assert live <= 0 and abs(blocks) < 250, f"{live} bytes of tensors and {blocks} Python blocks stayed in 500 loops"
    if "libasan" not in os.environ.get("LD_PRELOAD", ""):
        assert resident <= 1 << 20, f"resident memory grew by {resident} bytes in 500 loops"
