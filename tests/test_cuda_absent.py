"""Without CUDA kernels: scripts that ask get the truth, scripts that insist get a sentence."""
from __future__ import annotations

import pytest
import rushlight as rl


def test_questions_are_answered():
    assert rl.cuda.is_available() is False and rl.cuda.device_count() == 0 and rl.cuda.memory_allocated() == 0
    assert "built without CUDA" in rl.cuda.why_not()
    rl.cuda.manual_seed_all(0)
    rl.cuda.empty_cache()
    assert rl.device("cuda" if rl.cuda.is_available() else "cpu") == rl.device("cpu")


@pytest.mark.parametrize("use", [lambda: rl.zeros(2, device="cuda"), lambda: rl.ones(2).to("cuda:0"), lambda: rl.ones(2).cuda(), lambda: rl.nn.Linear(2, 2).cuda(),
                                 lambda: rl.cuda.synchronize(), lambda: rl.cuda.Stream(), lambda: rl.cuda.current_device(), lambda: rl.tensor([1.0], device="cuda")])
def test_use_raises_a_sentence(use):
    with pytest.raises((RuntimeError, AssertionError), match="cuda|CUDA"):
        use()


def test_switches_can_be_set():
    rl.backends.cudnn.benchmark = True
    rl.backends.cudnn.deterministic = True
    rl.backends.cuda.matmul.allow_tf32 = True
    assert rl.backends.cudnn.benchmark and not rl.backends.cudnn.is_available()
