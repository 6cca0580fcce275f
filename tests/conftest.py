"""What all tests share: which marked tests run, and a clean mode after each test."""
from __future__ import annotations

import pytest
import rushlight as rl


def pytest_collection_modifyitems(config, items):
    """Tests marked `torch` or `slow` run only when -m asks for them: the base suite needs no PyTorch and stays short."""
    if config.getoption("-m"):
        return
    chosen = [i for i in items if not (i.get_closest_marker("torch") or i.get_closest_marker("slow"))]
    config.hook.pytest_deselected(items=[i for i in items if i not in chosen])
    items[:] = chosen


@pytest.fixture(autouse=True)
def clean_modes():
    """A test that leaves a mode switched on would change those after it."""
    yield
    assert rl.is_grad_enabled(), "the test left grad mode off"
    assert rl.get_default_dtype() == rl.float32, "the test left another default dtype"
