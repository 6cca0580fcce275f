/* norm: what norm.c gives its backward rules: the fused backward kernels, unrecorded. */
#ifndef RL_NORM_H
#define RL_NORM_H
#include "derivs.h"

/* g: the gradient of y, y: the forward's result, both along `axis`. */
rl_status rl_softmax_backward(rl_tensor *g, rl_tensor *y, int axis, bool log, rl_tensor **out);

/* Over the last n elements of x; bias unused where `rms`. dx, dw, db: NULL where not wanted; dw and db have shape (n). */
typedef struct rl_layer_norm_backward_args {
    rl_tensor *g, *x, *weight, *mean, *rstd;
    int64_t n;
    double eps;
    bool rms;
} rl_layer_norm_backward_args;
rl_status rl_layer_norm_backward(const rl_layer_norm_backward_args *a, rl_tensor **dx, rl_tensor **dw, rl_tensor **db);

#endif
