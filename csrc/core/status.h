/* status: return codes and the thread's last message.
 *
 * Every function that can fail returns an rl_status; the message lies in a thread-local buffer, so nothing is allocated
 * on the way of an error (out of memory included) and only csrc/py turns it into an exception.
 * Invariant: a status other than RL_OK has set the message, except RL_ERR_PYTHON, where a Python exception is pending
 * on this thread (raised by a hook or a custom Function that the engine called back).
 */
#ifndef RL_STATUS_H
#define RL_STATUS_H

typedef enum rl_status {
    RL_OK = 0,
    RL_ERR_RUNTIME,
    RL_ERR_TYPE,
    RL_ERR_VALUE,
    RL_ERR_INDEX,
    RL_ERR_MEMORY,
    RL_ERR_NOT_IMPLEMENTED,
    RL_ERR_OVERFLOW,
    RL_ERR_OS,
    RL_ERR_INTERRUPT,
    RL_ERR_ZERO_DIVISION,
    RL_ERR_PYTHON,
} rl_status;

/* Sets the message (printf form, cut at 2,000 bytes) and gives `code`. A macro, so that the compiler sees which code comes back: that a
 * failure is not RL_OK is what tells it which variables are set afterwards. */
#define rl_fail(code, ...)                    \
    __extension__({                           \
        rl_status rl_code_ = (code);          \
        rl_fail_message(__VA_ARGS__);         \
        rl_code_;                             \
    })
void rl_fail_message(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Puts `format` before the message that stands, as "Prefix: message". Returns `code`. */
rl_status rl_fail_prefix(rl_status code, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The message of the last failure on this thread; never NULL. */
const char *rl_last_message(void);

/* A buffer for a piece of a message: this thread's until it has asked for fifteen more. */
#define RL_TEXT_BYTES 256
char *rl_text_buffer(void);

#define RL_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RL_LIKELY(x) __builtin_expect(!!(x), 1)

/* RL_TRY jumps to the function's one `fail:` label with the code in `st`; RL_RETURN is for functions that own nothing. */
#define RL_TRY(expr)                             \
    do {                                         \
        if (RL_UNLIKELY((st = (expr)) != RL_OK)) \
            goto fail;                           \
    } while (0)
#define RL_FAIL(...)              \
    do {                          \
        st = rl_fail(__VA_ARGS__); \
        goto fail;                \
    } while (0)
#define RL_RETURN(expr)                     \
    do {                                    \
        rl_status rl_st_ = (expr);          \
        if (RL_UNLIKELY(rl_st_ != RL_OK))   \
            return rl_st_;                  \
    } while (0)

#endif
