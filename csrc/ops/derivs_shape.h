/* derivs_shape: the node classes of views, joins and copies; rules in derivs_shape.c, one line of the list each. */
#ifndef RL_DERIVS_SHAPE_H
#define RL_DERIVS_SHAPE_H
#include "../core/graph.h"

/* X(name, grad_fn, rule) */
#define RL_SHAPE_DERIVS(X)                            \
    X(clone, "CloneBackward0", back_same)             \
    X(to_copy, "ToCopyBackward0", back_cast)          \
    X(copy_into, "CopyBackwards", back_copy_into)     \
    X(fill, "FillBackward2", back_zero)               \
    X(fill_tensor, "FillBackward3", back_fill)        \
    X(zero, "ZeroBackward0", back_zero)               \
    X(alias, "AliasBackward0", back_same)             \
    X(view, "ViewBackward0", back_reshape)            \
    X(unsafe_view, "UnsafeViewBackward0", back_reshape) \
    X(squeeze, "SqueezeBackward0", back_reshape)      \
    X(squeeze_dim, "SqueezeBackward1", back_reshape)  \
    X(squeeze_dims, "SqueezeBackward2", back_reshape) \
    X(unsqueeze, "UnsqueezeBackward0", back_reshape)  \
    X(expand, "ExpandBackward0", back_expand)         \
    X(permute, "PermuteBackward0", back_permute)      \
    X(transpose, "TransposeBackward0", back_transpose) \
    X(t, "TBackward0", back_transpose)                \
    X(select, "SelectBackward0", back_select)         \
    X(slice, "SliceBackward0", back_slice)            \
    X(diagonal, "DiagonalBackward0", back_diagonal)   \
    X(select_back, "SelectBackwardBackward0", again_select) \
    X(slice_back, "SliceBackwardBackward0", again_slice) \
    X(diagonal_back, "DiagonalBackwardBackward0", again_diagonal) \
    X(select_scatter, "SelectScatterBackward0", back_select_scatter) \
    X(slice_scatter, "SliceScatterBackward0", back_slice_scatter) \
    X(diagonal_scatter, "DiagonalScatterBackward0", back_diagonal_scatter) \
    X(diagonal_copy, "DiagonalBackward0_copy", back_diagonal) \
    X(diag_embed, "DiagEmbedBackward0", back_diag_embed) \
    X(as_strided, "AsStridedBackward0", back_as_strided) \
    X(unfold, "UnfoldBackward0", back_unfold)         \
    X(unbind, "UnbindBackward0", back_unbind)         \
    X(split, "SplitBackward0", back_split)            \
    X(split_sizes, "SplitWithSizesBackward0", back_split) \
    X(cat, "CatBackward0", back_cat)                  \
    X(stack, "StackBackward0", back_stack)            \
    X(repeat, "RepeatBackward0", back_repeat)         \
    X(flip, "FlipBackward0", back_flip)               \
    X(roll, "RollBackward0", back_roll)               \
    X(tril, "TrilBackward0", back_tril)               \
    X(triu, "TriuBackward0", back_triu)

#define X(name, grad_fn, rule) extern const rl_node_class rl_class_##name;
RL_SHAPE_DERIVS(X)
#undef X

#endif
