/* elementwise: what the front of the engine and its derivatives share. */
#ifndef RL_ELEMENTWISE_H
#define RL_ELEMENTWISE_H
#include "ops.h"

/* A row of the table as the engine reads it. first: the text of the first derivatives ("g": the gradient passes as it is, "T(0)", "NOGRAD"). */
typedef struct rl_row {
    uint8_t rule, saves, n; /* n: operands; 0: not elementwise */
    int16_t expr;
    const char *first[3];
} rl_row;
extern const rl_row rl_rows[RL_OP_COUNT];

/* torch.result_type of the operands. */
rl_dtype rl_result_type(const rl_operand *in, int n);

/* Like rl_expression, but the result is written over in[0]; *out is NULL, and nothing has happened, where operands must be broadcast or converted. */
rl_status rl_expression_over(int expr, const rl_operand *in, int n, const rl_number *p, rl_tensor **out);

/* x += y where nothing is recorded; the version stays. */
rl_status rl_add_over(rl_tensor *x, rl_tensor *y);

/* The node of a row over its operands, with the saved operands (clones of the one about to be written, in place). */
rl_status rl_row_record_begin(int id, const rl_operand *in, int n, const rl_scalar *p, int np, bool inplace, rl_node **out);
/* After the result is there: saves it when the row wants it. */
rl_status rl_row_record_end(rl_node *node, int id, rl_tensor *result);

#endif
