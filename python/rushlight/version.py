"""What this build is, with PyTorch's names."""
from __future__ import annotations

from . import __version__ as __version__

cuda: str | None = None
hip: str | None = None
xpu: str | None = None
debug = False
git_version = "unknown"
