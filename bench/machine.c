/*
 * The processor's name, its last-level cache and how busy it is, from the files of Linux. On other systems, or where these
 * files are hidden, the fields are empty and a usual cache size is assumed.
 */
#define _XOPEN_SOURCE 700 /* sysconf names, gmtime_r */

#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* The first line of a file without its end, or false. */
static bool first_line(const char *path, char *text, int bytes)
{
    FILE *const file = fopen(path, "r");
    const bool found = file && fgets(text, bytes, file);
    if (file)
        fclose(file);
    if (found)
        text[strcspn(text, "\n")] = '\0';
    return found;
}

/* ---- The processor ---- */

/* Arm processors report numbers. These are those of servers; others are shown by number. */
static const struct {
    long implementer, part;
    const char *name;
} arm_names[] = {
    {0x41, 0xd08, "Arm Cortex-A72"},
    {0x41, 0xd0b, "Arm Cortex-A76"},
    {0x41, 0xd0c, "Arm Neoverse-N1"},
    {0x41, 0xd40, "Arm Neoverse-V1"},
    {0x41, 0xd49, "Arm Neoverse-N2"},
    {0x41, 0xd4f, "Arm Neoverse-V2"},
    {0x41, 0xd84, "Arm Neoverse-V3"},
    {0x41, 0xd8e, "Arm Neoverse-N3"},
    {0x48, 0xd01, "HiSilicon TaiShan v110"},
    {0xc0, 0xac3, "Ampere-1"},
    {0xc0, 0xac4, "Ampere-1A"},
};

static void name_arm(char *text, size_t bytes, long implementer, long part)
{
    for (size_t i = 0; i < sizeof arm_names / sizeof *arm_names; i++)
        if (arm_names[i].implementer == implementer && arm_names[i].part == part) {
            snprintf(text, bytes, "%s", arm_names[i].name);
            return;
        }
    snprintf(text, bytes, "Arm implementer 0x%lx part 0x%lx", implementer, part);
}

static void read_cpu(char *text, size_t bytes)
{
    long implementer = 0, part = 0;
    char line[256];
    FILE *const file = fopen("/proc/cpuinfo", "r");
    while (file && fgets(line, sizeof line, file) && text[0] == '\0' && part == 0) {
        const char *value = strchr(line, ':');
        line[strcspn(line, "\n")] = '\0';
        value = value ? value + 1 + strspn(value + 1, " \t") : "";
        if (strncmp(line, "model name", strlen("model name")) == 0)
            snprintf(text, bytes, "%s", value);
        else if (strncmp(line, "CPU implementer", strlen("CPU implementer")) == 0)
            implementer = strtol(value, NULL, 0);
        else if (strncmp(line, "CPU part", strlen("CPU part")) == 0)
            part = strtol(value, NULL, 0);
    }
    if (file)
        fclose(file);
    if (text[0] == '\0' && part != 0)
        name_arm(text, bytes, implementer, part);
}

/* ---- The last-level cache ---- */

static bool cache_file(int index, const char *name, char *text, int bytes)
{
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", index, name);
    return first_line(path, text, bytes);
}

/* The length of a list such as "0-3,8". */
static int count_list(const char *text)
{
    int count = 0;
    while (*text >= '0' && *text <= '9') {
        char *end = NULL;
        const long first = strtol(text, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        count += (int)(last - first) + 1;
        text = *end == ',' ? end + 1 : end;
    }
    return count;
}

static void read_cache(struct bench_machine *machine)
{
    long level = 0;
    char text[256];
    for (int i = 0; i < 8 && cache_file(i, "level", text, sizeof text); i++) {
        const long this_level = strtol(text, NULL, 10);
        if (this_level <= level || !cache_file(i, "type", text, sizeof text) || text[0] == 'I' ||
            !cache_file(i, "size", text, sizeof text))
            continue;
        level = this_level;
        char *unit = NULL;
        const unsigned long size = strtoul(text, &unit, 10);
        machine->cache_bytes = (size_t)size << (*unit == 'M' ? 20 : *unit == 'K' ? 10 : 0);
        const int sharing = cache_file(i, "shared_cpu_list", text, sizeof text) ? count_list(text) : 0;
        machine->caches = sharing > 0 && machine->cpus > sharing ? machine->cpus / sharing : 1;
    }
}

struct bench_machine bench_machine(void)
{
    struct bench_machine machine = {.cpus = (int)sysconf(_SC_NPROCESSORS_ONLN), .caches = 1};
    const time_t now = time(NULL);
    struct tm day;
    if (gmtime_r(&now, &day))
        strftime(machine.date, sizeof machine.date, "%Y-%m-%d", &day);
    read_cpu(machine.cpu, sizeof machine.cpu);
    read_cache(&machine);
    return machine;
}

/* ---- Other programs ---- */

struct bench_usage bench_usage(void)
{
    struct bench_usage usage = {.at = bench_now()};
    char line[256];
    struct timespec own;
    if (!first_line("/proc/stat", line, sizeof line) || strncmp(line, "cpu ", 4) != 0 ||
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own) != 0)
        return usage;
    /* user, nice, system, idle, wait, irq, softirq, steal */
    char *at = line + 4;
    for (int i = 0; i < 8; i++) {
        const unsigned long long ticks = strtoull(at, &at, 10);
        if (i != 3 && i != 4)
            usage.all += (double)ticks / (double)sysconf(_SC_CLK_TCK);
    }
    usage.own = (double)own.tv_sec + (double)own.tv_nsec * 1e-9;
    return usage;
}

double bench_others(const struct bench_usage *since)
{
    const struct bench_usage now = bench_usage();
    const double cpus = (double)sysconf(_SC_NPROCESSORS_ONLN);
    const double share = (now.all - since->all - (now.own - since->own)) / ((now.at - since->at) * cpus);
    return share > 0 ? share : 0;
}

/* Three times the size of all last-level caches, or enough for usual ones where that is not known. */
size_t bench_cold_bytes(bool quick)
{
    const size_t least = (size_t)128 << 20, most = quick ? least : (size_t)4 << 30;
    const struct bench_machine machine = bench_machine();
    const size_t want = 3 * machine.cache_bytes * (size_t)machine.caches;
    return want < least ? least : want > most ? most : want;
}
