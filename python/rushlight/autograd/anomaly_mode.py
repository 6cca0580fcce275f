"""Anomaly detection: the forward line of a backward that failed or gave NaN."""
from __future__ import annotations

from .. import _C

TYPE_CHECKING = False  # known to type checkers; importing typing takes longer than all of this package
if TYPE_CHECKING:
    from typing import Any

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class set_detect_anomaly:
    """Sets anomaly detection, as a call or for a with block. While it is on, each recorded operator keeps its Python stack, and with
    check_nan a NaN gradient is a RuntimeError that names the operator."""

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self.prev = _C._set_anomaly(mode)
        self.prev_check_nan = _C._set_anomaly_check_nan(check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        _C._set_anomaly(self.prev)
        _C._set_anomaly_check_nan(self.prev_check_nan)


class detect_anomaly:
    """Anomaly detection for a with block."""

    def __init__(self, check_nan: bool = True) -> None:
        self.check_nan = check_nan
        import warnings
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for "
                      "debugging.", stacklevel=2)

    def __enter__(self) -> None:
        self.set = set_detect_anomaly(True, self.check_nan)

    def __exit__(self, *exc: Any) -> None:
        self.set.__exit__(*exc)
