/* status: the thread's last message, and small rings of text buffers for messages. See status.h. */
#include "status.h"

#include "alloc.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_BYTES 2048

/* What lies in a thread's texts. */
typedef struct texts {
    char message[MESSAGE_BYTES];
    char ring[16][RL_TEXT_BYTES];
    unsigned at;
} texts;
_Static_assert(sizeof(texts) <= RL_THREAD_TEXTS, "a thread's texts must have room");

static texts *own(void) { return (texts *)(void *)rl_thread_texts(); }

char *rl_text_buffer(void)
{
    texts *t = own();
    return t->ring[t->at++ & 15];
}

void rl_fail_message(const char *format, ...)
{
    /* arguments may point into the old message: format beside it, then move */
    char fresh[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    memcpy(own()->message, fresh, sizeof fresh);
}

rl_status rl_fail_prefix(rl_status code, const char *format, ...)
{
    char fresh[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof fresh)
        snprintf(fresh + n, sizeof fresh - (size_t)n, ": %.*s", (int)(sizeof fresh - (size_t)n) - 3, own()->message);
    memcpy(own()->message, fresh, sizeof fresh);
    return code;
}

const char *rl_last_message(void)
{
    return own()->message;
}
