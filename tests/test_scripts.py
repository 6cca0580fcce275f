"""`rushlight run`, `python -m rushlight`, `rushlight check`: PyTorch scripts as they are."""
from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import rushlight
from rushlight._check import check_source

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(rushlight.__file__)))


def python(*arguments, cwd=None, **environment):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in [ROOT, os.environ.get("PYTHONPATH", "")] if p), **environment}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=cwd, env=env, timeout=120)


def run_code(tmp_path, code, *arguments):
    script = tmp_path / "script.py"
    script.write_text(code)
    return python("-m", "rushlight", str(script), *arguments, cwd=tmp_path)


def test_a_script_that_says_import_torch(tmp_path):
    r = run_code(tmp_path, """
import sys, torch, torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader
from torch import optim
import rushlight
assert torch is rushlight and torch.nn is rushlight.nn and sys.modules['torch.nn'] is sys.modules['rushlight.nn']
assert F is rushlight.nn.functional and DataLoader is rushlight.utils.data.DataLoader and optim is rushlight.optim
assert __name__ == '__main__' and sys.argv[1:] == ['a', '--b']
print(torch.__version__, torch.float32, torch.ones(2).dtype, type(torch.ones(1)), torch.ones(1).type(), torch.Size([1]))
""", "a", "--b")
    assert r.returncode == 0, r.stderr
    assert r.stdout.split()[0].startswith("2.") and "torch.float32 torch.float32" in r.stdout and "torch.FloatTensor torch.Size([1])" in r.stdout
    assert "<class 'torch.Tensor'>" in r.stdout


def test_version_is_found_by_metadata_and_parses(tmp_path):
    r = run_code(tmp_path, """
import importlib.metadata, torch
print(importlib.metadata.version('torch'), tuple(int(p) for p in torch.__version__.split('+')[0].split('.')) >= (2, 0))
""")
    assert r.stdout.split() == ["2.13.0", "True"], r.stderr


def test_child_and_worker_processes_see_the_same_modules(tmp_path):
    r = run_code(tmp_path, """
import subprocess, sys, torch
from torch.utils.data import DataLoader, Dataset
class Data(Dataset):
    def __len__(self): return 8
    def __getitem__(self, i):
        import torch, rushlight
        assert torch is rushlight
        return torch.tensor([float(i)])
if __name__ == '__main__':
    print(sum(x.sum().item() for x in DataLoader(Data(), batch_size=2, num_workers=2)))
    print(subprocess.run([sys.executable, '-c', 'import torch; print(torch.__name__)'], capture_output=True, text=True).stdout)
""")
    assert r.stdout.split() == ["28.0", "rushlight"], r.stderr


def test_a_third_party_package_that_imports_torch(tmp_path):
    package = tmp_path / "helper"
    package.mkdir()
    (package / "__init__.py").write_text("import torch\nfrom torch import nn\nclass Net(nn.Module):\n    def forward(self, x): return torch.relu(x)\n")
    r = run_code(tmp_path, "import helper, torch\nprint(helper.Net()(torch.tensor([-1., 2.])).tolist(), helper.torch is torch)")
    assert r.stdout.strip() == "[0.0, 2.0] True", r.stderr


def test_a_missing_name_says_so(tmp_path):
    r = run_code(tmp_path, "import torch\ntorch.sotfmax(torch.ones(2), 0)")
    assert r.returncode == 1 and "has no attribute 'sotfmax': rushlight lacks it; the nearest name it has is 'softmax'" in r.stderr
    assert "import torch.fft" and "script.py\", line 2" in r.stderr and "__main__.py" not in r.stderr  # the traceback is the script's own
    r = run_code(tmp_path, "from torch.nowhere import x")
    assert r.returncode == 1 and "ModuleNotFoundError" in r.stderr and "torch.nowhere" in r.stderr


def test_module_and_code_and_exit_codes(tmp_path):
    (tmp_path / "mod.py").write_text("import torch, sys\nprint(torch.zeros(1).item(), sys.argv[1])\nsys.exit(3)")
    r = python("-m", "rushlight", "run", "-m", "mod", "arg", cwd=tmp_path)
    assert (r.returncode, r.stdout.split()) == (3, ["0.0", "arg"]), r.stderr
    r = python("-m", "rushlight", "-c", "import torch; print(torch.ones(1).item())", cwd=tmp_path)
    assert r.stdout.strip() == "1.0", r.stderr


@pytest.mark.parametrize("arguments,text", [(["run"], "usage"), (["run", "no.py"], "can't open file"), (["run", "-m"], "needs an argument"), (["run", "--x"], "unknown option"),
                                            (["frobnicate"], "unknown command"), ([], "usage"), (["check"], "usage"), (["check", "no.py"], "no.py")])
def test_wrong_use_is_2(arguments, text, tmp_path):
    r = python("-m", "rushlight", *arguments, cwd=tmp_path)
    assert r.returncode == 2 and text in r.stderr


def test_help_is_written_in_both_languages():
    r = python("-m", "rushlight", "--help")
    assert r.returncode == 0 and "usage: rushlight run" in r.stdout and "用法" in r.stdout


SCRIPT = """import torch
import torch.nn as nn
from torch.utils.data import DataLoader
from torch import zeros, frobnicate
import torch.nowhere
x = torch.sotfmax(zeros(3), 0)
y = nn.Linaer(2, 2)
z = torch.nn.functional.relu(x)
"""


def test_check_lists_missing_names():
    found = check_source(SCRIPT)
    assert [(f.line, f.name) for f in found] == [(4, "torch.frobnicate"), (5, "torch.nowhere"), (6, "torch.sotfmax"), (7, "torch.nn.Linaer")]
    assert found[2].nearest == "softmax" and found[3].nearest == "Linear"


def test_check_command(tmp_path):
    bad, good = tmp_path / "bad.py", tmp_path / "good.py"
    bad.write_text(SCRIPT)
    good.write_text("import torch\nprint(torch.ones(3))\n")
    r = python("-m", "rushlight", "check", str(bad))
    assert r.returncode == 1 and f"{bad}:6: torch.sotfmax is not in rushlight" in r.stdout
    r = python("-m", "rushlight", "check", "--json", str(bad))
    assert r.returncode == 1 and json.loads(r.stdout)["schema"] == 1 and len(json.loads(r.stdout)["missing"]) == 4
    assert python("-m", "rushlight", "check", str(good)).returncode == 0
