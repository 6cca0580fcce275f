"""The examples run as they stand, and reach what they promise."""
from __future__ import annotations

import os
import pathlib
import re
import subprocess
import sys

import pytest
import rushlight

ROOT = pathlib.Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(rushlight.__file__)))

# PyTorch 2.13, seed 0, the same script with `import torch`
QUICKSTART_LOSSES = [1.5486581325531006, 1.4747496843338013, 1.4057862758636475, 1.3413712978363037, 1.2811431884765625, 1.2247710227966309, 1.1719529628753662,
                     1.1224132776260376, 1.0759000778198242, 1.0321824550628662]


def run(*arguments, cwd):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])}
    r = subprocess.run([sys.executable, *map(str, arguments)], capture_output=True, text=True, cwd=cwd, env=env, timeout=300)
    assert r.returncode == 0, r.stderr
    return r.stdout


def test_quickstart_prints_pytorchs_losses(tmp_path):
    out = run(EXAMPLES / "quickstart.py", cwd=tmp_path)
    lines = re.findall(r"Epoch (\d+), Loss: ([\d.]+)", out)
    assert [int(n) for n, _ in lines] == list(range(1, 11))
    assert [float(v) for _, v in lines] == pytest.approx(QUICKSTART_LOSSES, rel=1e-6)


def test_digits_learns_resumes_to_the_same_bits_and_plots(tmp_path):
    whole = run(EXAMPLES / "digits.py", "--epochs", "30", "--save", "whole.pt", "--plot", "curves.png", cwd=tmp_path)
    accuracy = float(re.search(r"^test accuracy: ([\d.]+)%", whole, re.M).group(1))
    assert accuracy >= 97 and (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"

    state = rushlight.load(tmp_path / "whole.pt")
    assert state["epoch"] == 30 and len(state["history"]) == 30


def test_a_resumed_run_equals_one_that_never_stopped(tmp_path):
    sys.path.insert(0, str(EXAMPLES))
    try:
        import digits
    finally:
        sys.path.remove(str(EXAMPLES))
    os.chdir(tmp_path)
    whole = digits.main(["--epochs", "4", "--save", "a.pt"])

    def interrupted(model, loader, optimizer, criterion, epoch, epochs, original=digits.train_epoch):
        if epoch == 2:
            raise KeyboardInterrupt
        return original(model, loader, optimizer, criterion, epoch, epochs)
    original, digits.train_epoch = digits.train_epoch, interrupted
    with pytest.raises(KeyboardInterrupt):
        digits.main(["--epochs", "4", "--save", "b.pt"])
    digits.train_epoch = original
    resumed = digits.main(["--epochs", "4", "--save", "b.pt", "--resume", "b.pt"])
    assert [h["loss"] for h in resumed] == [h["loss"] for h in whole]
    a, b = rushlight.load("a.pt")["model"], rushlight.load("b.pt")["model"]
    assert all(a[k].tolist() == b[k].tolist() for k in a)


def test_torch_script_runs_unchanged(tmp_path):
    out = run("-m", "rushlight", "run", EXAMPLES / "torch_script.py", cwd=tmp_path)
    match = re.search(r"torch 2\.\S+: torch\.float32, (\d+)% of the points", out)
    assert match and int(match.group(1)) >= 90


def test_notebook_executes(tmp_path):
    import nbformat
    from nbclient import NotebookClient
    notebook = nbformat.read(EXAMPLES / "digits.ipynb", as_version=4)
    os.environ["PYTHONPATH"] = os.pathsep.join([PACKAGE, os.environ.get("PYTHONPATH", "")])
    NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    text = "\n".join(o.get("text", "") or str(o.get("data", {}).get("text/plain", "")) for c in notebook.cells if c.cell_type == "code" for o in c.outputs)
    assert "Sequential(\n  (0): Linear(in_features=64, out_features=128, bias=True)" in text and "tensor([[" in text
    assert float(re.search(r"'accuracy': ([\d.]+)", text).group(1)) >= 0.97
