/*
 * WRAPPED(type, name, parameters) begins a function that the linker calls in place of `name` (--wrap): that one is __real_name.
 */
#pragma once

#define WRAPPED(type, name, ...) \
    type __real_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__); \
    type __wrap_##name(__VA_ARGS__)
