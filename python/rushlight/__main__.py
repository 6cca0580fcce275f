"""The command line: `rushlight run`, `rushlight check`, and `python -m rushlight script.py`.

A script is run by replacing this process with a plain interpreter whose PYTHONPATH starts with the alias folder: so `__main__`, tracebacks,
signals and exit codes are the script's own, and child processes inherit the alias. Exit codes: 0 fine, 1 a finding, 2 wrong use.
"""
from __future__ import annotations

import os
import sys

_USAGE = """usage: rushlight run SCRIPT.py [ARG ...]      run a PyTorch script as it is: `import torch` gives rushlight
       rushlight run -m MODULE [ARG ...]      the same for a module
       rushlight run -c CODE [ARG ...]        the same for a piece of code
       rushlight check [--json] SCRIPT.py ... list beforehand which of PyTorch's names a script uses and rushlight lacks
       rushlight version

`python -m rushlight SCRIPT.py` is `rushlight run SCRIPT.py`.
Exit code: the script's own; check: 0 nothing is missing, 1 names are missing, 2 wrong use.

用法：rushlight run 脚本.py [参数 ...]         原样运行 PyTorch 脚本：`import torch` 得到的是 rushlight
      rushlight run -m 模块 | -c 代码          同上，运行模块或一段代码
      rushlight check [--json] 脚本.py ...     事先列出脚本用到而 rushlight 没有的 PyTorch 名称
"""


def _package_root() -> str:
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _environment() -> dict[str, str]:
    """The environment of the script: the alias first in PYTHONPATH, then this package when it is not installed."""
    import site

    from rushlight.alias import folder
    env = dict(os.environ)
    old = [p for p in env.get("PYTHONPATH", "").split(os.pathsep) if p and p != folder()]
    root = _package_root()
    known = {os.path.abspath(p) for p in [*site.getsitepackages(), site.getusersitepackages(), *old]}
    env["PYTHONPATH"] = os.pathsep.join([folder(), *([] if root in known else [root]), *old])
    return env


def run(arguments: list[str]) -> int:
    """Replaces this process by Python running the script; returns only for wrong use."""
    import subprocess
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_USAGE, end="", file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    first = arguments[0]
    if first in ("-m", "-c") and len(arguments) < 2:
        print(f"rushlight run: {first} needs an argument", file=sys.stderr)
        return 2
    if first not in ("-m", "-c"):
        if first.startswith("-") and first != "-":
            print(f"rushlight run: unknown option {first}", file=sys.stderr)
            return 2
        if first != "-" and not os.path.exists(first):
            print(f"rushlight run: can't open file {first!r}: No such file or directory", file=sys.stderr)
            return 2
    if sys.flags.ignore_environment or sys.flags.isolated:
        print("rushlight run: the interpreter ignores PYTHONPATH (-E or -I), so the script would not find rushlight", file=sys.stderr)
        return 2
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]  # what multiprocessing uses, too
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *flags, *arguments], _environment())


def main(arguments: list[str] | None = None) -> int:
    """Entry point of the console command; `arguments` without the program's name."""
    arguments = sys.argv[1:] if arguments is None else arguments
    command = arguments[0] if arguments else ""
    if command in ("", "-h", "--help", "help"):
        print(_USAGE, end="", file=sys.stdout if command else sys.stderr)
        return 0 if command else 2
    if command == "run":
        return run(arguments[1:])
    if command == "check":
        from rushlight._check import main as check
        return check(arguments[1:])
    if command in ("version", "--version", "-V"):
        import rushlight
        print(f"rushlight {rushlight.__version__}")
        return 0
    if command.endswith(".py") or command in ("-m", "-c", "-") or os.path.exists(command):
        return run(arguments)
    print(f"rushlight: unknown command {command!r}\n{_USAGE}", end="", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
