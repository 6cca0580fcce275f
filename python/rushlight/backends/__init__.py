"""PyTorch's `torch.backends`: switches that scripts set. Without CUDA kernels those of cuda and cudnn are kept and mean nothing yet."""
from __future__ import annotations

from types import SimpleNamespace


class _Switches(SimpleNamespace):
    """Attributes that can be read and set; `is_available()` is False."""

    def is_available(self) -> bool:
        return False


cudnn = _Switches(enabled=True, benchmark=False, benchmark_limit=10, deterministic=False, allow_tf32=True, version=lambda: None)
cuda = _Switches(matmul=SimpleNamespace(allow_tf32=False, allow_fp16_reduced_precision_reduction=True, allow_bf16_reduced_precision_reduction=True),
                 is_built=lambda: False)
mps = _Switches(is_built=lambda: False)
mkl = _Switches()
mkldnn = _Switches(enabled=False)
openmp = _Switches()
