/* loss: what the losses give their backward rules. */
#ifndef RL_LOSS_H
#define RL_LOSS_H
#include "derivs.h"

/* Classes along axis 1 (0 of a vector) of x; target: int64 of the other axes. */
typedef struct rl_class_loss {
    rl_tensor *x, *target, *weight;
    int reduction; /* RL_LOSS_ */
    int64_t ignore;
    double smoothing;
    bool log_input;
} rl_class_loss;

/* x as (rows, classes), contiguous; unrecorded. */
rl_status rl_class_rows(rl_tensor *x, rl_tensor **out);
/* A tensor of (rows, classes) back in the layout of x. */
rl_status rl_class_rows_back(rl_tensor *rows, const rl_tensor *x, rl_tensor **out);
/* The gradient of the logits, unrecorded; lse and total as the forward left them. */
rl_status rl_class_loss_backward(const rl_class_loss *k, rl_tensor *g, rl_tensor *lse, rl_tensor *total, rl_tensor **out);

#endif
