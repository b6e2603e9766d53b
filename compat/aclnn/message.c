/*
 * The last error sentence. The vendor's aclGetRecentErrMsg takes no handle and returns the error of the thread, so the
 * sentence is thread-local.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char sentence[512];
static _Thread_local bool unread;
static _Thread_local aclnnStatus last_status;

aclnnStatus syi_aclnn_fail(aclnnStatus status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    unread = true;
    last_status = status;
    return status;
}

aclnnStatus syi_aclnn_last_status(void)
{
    return last_status;
}

void syi_aclnn_reject(aclOpExecutor *e, aclnnStatus status, const char *format, ...)
{
    char reason[sizeof sentence];
    va_list args;
    if (e == NULL || e->status != ACLNN_SUCCESS)
        return;
    va_start(args, format);
    (void)vsnprintf(reason, sizeof reason, format, args);
    va_end(args);
    e->status = syi_aclnn_fail(status, "%s: %s", e->op->name, reason);
}

void syi_aclnn_want(aclOpExecutor *e, bool good, aclnnStatus status, const char *field, int64_t value,
                    const char *want)
{
    if (!good)
        syi_aclnn_reject(e, status, "%s is %lld, want %s", field, (long long)value, want);
}

aclError syi_aclnn_fail_rt(aclError error, const char *call, const char *what)
{
    return syi_aclnn_fail(error, "%s: %s", call, what);
}

const char *aclGetRecentErrMsg(void)
{
    const bool news = unread;
    unread = false;
    return news ? sentence : "";
}
