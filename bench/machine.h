/*
 * Properties of the machine.
 */
#ifndef SWITCHYARD_BENCH_MACHINE_H
#define SWITCHYARD_BENCH_MACHINE_H

#include <stdbool.h>
#include <stddef.h>

struct bench_machine {
    char cpu[96];       /* the processor's name; empty: not known                               */
    int cpus;           /* online, hardware threads included                                    */
    size_t cache_bytes; /* of the last level; 0: not known                                      */
    int caches;         /* of that level: processors of many dies have one per group of cores   */
    char date[16];      /* today, as 2026-11-15                                                 */
};

struct bench_machine bench_machine(void);

/* After a rotation through this many bytes none of them is in a cache; in a quick run 128 MiB, and larger caches keep some. */
size_t bench_cold_bytes(bool quick);

#endif
