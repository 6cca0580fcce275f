/* status: the thread's last message, and small rings of text buffers for messages. See status.h. */
#include "status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_BYTES 2048

static _Thread_local char message[MESSAGE_BYTES];

void rl_fail_message(const char *format, ...)
{
    /* arguments may point into the old message: format beside it, then move */
    char fresh[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    memcpy(message, fresh, sizeof message);
}

rl_status rl_fail_prefix(rl_status code, const char *format, ...)
{
    char fresh[MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(fresh, sizeof fresh, format, args);
    va_end(args);
    if (n >= 0 && (size_t)n < sizeof fresh)
        snprintf(fresh + n, sizeof fresh - (size_t)n, ": %.*s", (int)(sizeof fresh - (size_t)n) - 3, message);
    memcpy(message, fresh, sizeof message);
    return code;
}

const char *rl_last_message(void)
{
    return message;
}
