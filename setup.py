"""Builds rushlight._C: every C file under csrc, the files of csrc/cpu/level once for each instruction level, in parallel.

Environment: RUSHLIGHT_DEBUG=1 (-O1 -g, warnings as errors), RUSHLIGHT_WERROR=1, RUSHLIGHT_SANITIZE=address,undefined or thread,
RUSHLIGHT_COVERAGE=1 (gcov), RUSHLIGHT_LEVELS=baseline,avx2 (only these instruction levels: quick builds while developing),
RUSHLIGHT_LTO=0 (no link-time optimisation: quicker links), CC. The flags of numeric code are fixed here and nowhere else: no -ffast-math (it
would set flush-to-zero for the whole process), no contraction except in gemm, so that a loop's vector body and its tail give the same bits.
"""
import concurrent.futures
import os
import pathlib
import platform
import re

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = pathlib.Path(__file__).parent
CSRC = pathlib.Path("csrc")
ENV = os.environ.get

BASE = ["-std=c11", "-D_GNU_SOURCE", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=off", "-Wall", "-Wextra",
        "-Wno-unused-parameter", "-pthread"]
OPTIMIZE = ["-O3"]
LEVELS = {"x86_64": {"baseline": [], "avx2": ["-mavx2", "-mfma", "-mf16c", "-mbmi2", "-mprefer-vector-width=256"],
                     "avx512": ["-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx2", "-mfma", "-mf16c", "-mbmi2",
                                "-mprefer-vector-width=512"]}}.get(platform.machine(), {"baseline": []})
if ENV("RUSHLIGHT_LEVELS"):
    LEVELS = {level: LEVELS[level] for level in ["baseline"] + [x for x in LEVELS if x in ENV("RUSHLIGHT_LEVELS").split(",") and x != "baseline"]}
CONTRACTED = re.compile(r"/(gemm|conv)\w*\.c$")  # products may fuse multiply and add


def flags():
    """Compiler and linker flags that the environment chooses."""
    compile_, link = BASE + [f"-DRL_HAVE_LEVEL_{level.upper()}=1" for level in LEVELS], ["-pthread"]
    if ENV("RUSHLIGHT_DEBUG") == "1":
        compile_ += ["-O1", "-g", "-Werror"]
    else:
        compile_ += OPTIMIZE + (["-Werror"] if ENV("RUSHLIGHT_WERROR") == "1" else [])
    if ENV("RUSHLIGHT_SANITIZE"):
        names = ENV("RUSHLIGHT_SANITIZE")
        extra = [f"-fsanitize={names}", "-fno-omit-frame-pointer", "-g"]
        extra += ["-fno-sanitize-recover=undefined"] if "undefined" in names else []
        compile_, link = compile_ + extra, link + extra
    elif ENV("RUSHLIGHT_DEBUG") != "1" and ENV("RUSHLIGHT_COVERAGE") != "1":
        link += ["-s", "-flto=auto", "-O3"]
    if ENV("RUSHLIGHT_COVERAGE") == "1":
        compile_, link = [f for f in compile_ if f not in OPTIMIZE] + ["--coverage", "-O0", "-g"], link + ["--coverage"]
    return compile_, link


class Build(build_ext):
    """Compiles the objects in parallel; a level file gives one object for each level."""

    def build_extension(self, ext):
        compile_, link = flags()
        temp = pathlib.Path(self.build_temp)
        jobs = []
        newest_header = max(p.stat().st_mtime for p in ROOT.glob("csrc/**/*") if p.suffix in (".h", ".def", ".inc"))
        newest_header = max(newest_header, (ROOT / "setup.py").stat().st_mtime)
        stamp = " ".join([*compile_, *link, ENV("RUSHLIGHT_LTO") or ""])
        whole = ["-flto"] if "-flto=auto" in link and ENV("RUSHLIGHT_LTO") != "0" else []  # small functions of core and ops inline into each other
        for source in sorted(ext.sources):
            contract = ["-ffp-contract=fast"] if CONTRACTED.search(source) else []
            for level, extra in (LEVELS.items() if "/level/" in source else [("", [])]):
                define = [f"-DRL_LEVEL={level}", f"-DRL_LEVEL_IS_{level.upper()}=1"] if level else []
                obj = temp / (source[:-2] + (f".{level}" if level else "") + ".o")
                jobs.append((source, obj, extra + contract + define + ([] if level else whole)))
        temp.mkdir(parents=True, exist_ok=True)
        flag_file = temp / "flags.txt"
        same_flags = flag_file.exists() and flag_file.read_text() == stamp

        def compile_one(job):
            source, obj, extra = job
            if same_flags and obj.exists() and obj.stat().st_mtime > max(newest_header, (ROOT / source).stat().st_mtime):
                return
            obj.parent.mkdir(parents=True, exist_ok=True)
            includes = [f"-I{d}" for d in self.compiler.include_dirs + ext.include_dirs]
            cc = [c for c in self.compiler.compiler_so if not re.match(r"-O\d|-g\d?$|-D_FORTIFY|-Wall|-DNDEBUG", c)]
            self.compiler.spawn(cc + compile_ + extra + includes + ["-fPIC", "-c", source, "-o", str(obj)])

        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            list(pool.map(compile_one, jobs))
        flag_file.write_text(stamp)
        target = pathlib.Path(self.get_ext_fullpath(ext.name))
        target.parent.mkdir(parents=True, exist_ok=True)
        self.compiler.link_shared_object([str(obj) for _, obj, _ in jobs], str(target), extra_postargs=link, libraries=["m", "dl"])

    def get_outputs(self):
        return [self.get_ext_fullpath(e.name) for e in self.extensions]


sources = sorted(str(p) for p in CSRC.glob("**/*.c") if "cuda" not in p.parts)
depends = sorted(str(p) for p in CSRC.glob("**/*") if p.suffix in (".h", ".def", ".inc", ".cu", ".cuh"))
setup(package_dir={"": "python"}, ext_modules=[Extension("rushlight._C", sources, depends=depends)],
      cmdclass={"build_ext": Build})
