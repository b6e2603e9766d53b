/*
 * How much stack a call needs: it runs on one of 32 KB with a page below it that cannot be touched, as in a program with
 * fibers or many threads. The stack is painted, so that the deepest byte is known afterwards.
 */
#pragma once

#include <stddef.h>

/* Sanitizers make frames larger. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { STACK_UNKNOWN = 1 };
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
enum { STACK_UNKNOWN = 1 };
#else
enum { STACK_UNKNOWN = 0 };
#endif
#else
enum { STACK_UNKNOWN = 0 };
#endif

enum { STACK_MOST = 16 * 1024 }; /* bytes that a call may need, from the first frame on */

size_t stack_of(void (*run)(void *data), void *data);
