"""Every elementwise loop in float32 and float64 is vector code at every instruction level above the baseline.

It is easily lost without a sign: a condition that does not depend on the element, a call of the math library or a conversion of 64-bit
integers leaves a scalar loop that is right and many times slower. So the loops are compiled to assembly with the flags of setup.py, and read.
"""

from __future__ import annotations

import concurrent.futures
import os
import pathlib
import platform
import re
import shlex
import subprocess
import sysconfig

import pytest

ROOT = pathlib.Path(__file__).parent.parent
LEVELS = {"avx2": "ymm", "avx512": "zmm"}
FILES = ["elementwise_f32", "elementwise_f64", "elementwise_grad_f32", "elementwise_grad_f64", "optim"]
CC = shlex.split(os.environ.get("CC") or (sysconfig.get_config_var("CC") or "gcc").split()[0])


def flags(level: str) -> list[str]:
    """The numeric flags of setup.py, which is where they are decided."""
    text = (ROOT / "setup.py").read_text()
    base = re.findall(r'"(-[^"]+)"', text[text.index("BASE =") : text.index("OPTIMIZE")])
    level_text = re.search(rf'"{level}": \[(.*?)\]', text, re.S)
    assert level_text
    return [f for f in base if not f.startswith("-W")] + re.findall(r'"(-[^"]+)"', level_text[1]) + ["-O3", f"-DRL_LEVEL={level}"]


def functions(file: str, level: str) -> dict[str, str]:
    source = ROOT / "csrc" / "cpu" / "level" / f"{file}.c"
    r = subprocess.run([*CC, *flags(level), "-S", str(source), "-o", "-"], capture_output=True, text=True, check=True)
    return dict(re.findall(r"^([a-z]\w*):\n(.*?)^\t\.size\t\1,", r.stdout, re.S | re.M))


def is_vector(name: str, code: dict[str, str], register: str, seen: tuple[str, ...] = ()) -> bool:
    body = code[name]
    if register in body or "memset" in body:
        return True
    alias = re.search(r"\tjmp\t(f_\w+)", body)  # the same code as another function's
    return bool(alias) and alias[1] not in seen and is_vector(alias[1], code, register, (*seen, name))


@pytest.fixture(scope="module")
def assembly() -> dict[tuple[str, str], dict[str, str]]:
    if platform.machine() != "x86_64":
        return {}
    jobs = [(f, level) for level in LEVELS for f in FILES]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return dict(zip(jobs, pool.map(lambda job: functions(*job), jobs), strict=True))


def test_every_elementwise_loop_is_vector_code(assembly):
    for (file, level), code in assembly.items():
        if file == "optim":
            continue
        names = [n for n in code if n.startswith("f_")]
        assert len(names) > 100
        assert [n for n in names if not is_vector(n, code, LEVELS[level])] == [], (file, level)
        assert [n for n in names if re.search(r"\tcall\t(?!memset)", code[n])] == [], (file, level)


def test_optimizer_steps_are_vector_code(assembly):
    for (file, level), code in assembly.items():
        if file == "optim":
            for step in ("sgd", "adam", "rmsprop", "adagrad"):
                for kind in ("f32", "f64"):
                    assert LEVELS[level] in code[f"{step}_{kind}"], (step, kind, level)


def test_the_reader_knows_scalar_code():
    """The check itself: a loop of scalar instructions is not taken for vector code."""
    code = {
        "f_a": "\tvaddss\t%xmm0, %xmm1, %xmm0\n",
        "f_b": "\tjmp\tf_a\n",
        "f_c": "\tvaddps\t(%rsi), %ymm0, %ymm0\n",
        "f_d": "\tjmp\tf_c\n",
    }
    assert [is_vector(n, code, "ymm") for n in code] == [False, False, True, True]
