"""rushlight.nn.utils: clipping of gradients, parameters as one vector."""
from .clip_grad import clip_grad_norm, clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from .convert_parameters import parameters_to_vector, vector_to_parameters

__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value_", "clip_grads_with_norm_", "get_total_norm", "parameters_to_vector",
           "vector_to_parameters"]


def __getattr__(name):
    if name == "rnn":
        raise AttributeError("rushlight.nn.utils.rnn does not exist yet: packed and padded sequences come with the recurrent layers")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
