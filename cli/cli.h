/*
 * Shared by the commands: exit codes, messages, argument parsing, the context options.
 */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include <switchyard.h>

#include "text.h" /* printable */

enum exit_code {
    EXIT_DONE = 0,
    EXIT_REJECTED = 1, /* the operator rejected its input, or a comparison or check failed */
    EXIT_USAGE = 2,    /* wrong command line, or a file that cannot be read or written */
};

/* ---- Messages: one line on stderr, always `switchyard: ...` ---- */

/*
 * Prints the error and the command for help (`help` = "run moe_permute"; NULL: the general help). Returns
 * EXIT_USAGE.
 */
int usage_error(const char *help, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same without the hint, for errors of a file or the machine. Returns EXIT_USAGE. */
int plain_error(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* ---- Arguments ---- */

struct arg_list {
    int count;
    char **texts;
    int next;
    bool only_words; /* after -- */
};

enum arg_kind { ARG_END, ARG_WORD, ARG_OPTION };

struct arg {
    enum arg_kind kind;
    const char *text;  /* the word, or the option's name after its dashes                          */
    int length;        /* of the name: it may end at '='                                            */
    const char *value; /* the text after '=', or NULL; arg_value then takes the next argument        */
};

/* True for the option of this name. */
bool arg_is(const struct arg *arg, const char *name);

/* Reads the next argument. A single dash or a negative number is a word. */
struct arg arg_next(struct arg_list *list);

/* The option's value: after '=', else the next argument, even one with dashes; NULL when there is none. */
const char *arg_value(struct arg_list *list, const struct arg *arg);

/* For a switch: the value after '=', else a following `true` or `false`, else "true". */
const char *arg_switch(struct arg_list *list, const struct arg *arg);

/* True when --help or -h is among the remaining arguments. */
bool arg_has_help(const struct arg_list *list);

/* ---- The processes of one run: team.c ---- */

struct common;

/* Under mpirun each process is one device of the mesh: all read the input file, only the first prints and writes. The plain
   program has no team and is linked without MPI; see main/switchyard_mpi.c for the other. */
struct team {
    int rank;
    /* Collective: a comm of the mesh, one process per device. */
    sy_status (*connect)(sy_comm **comm, sy_mesh mesh, const sy_comm_options *options);
    /* Collective: the exit code of the lowest rank that has one other than EXIT_DONE. The first process prints
       that rank's message. After such a code there are no more agreements: further calls return it. A process that
       ends early takes part once more at its end, so that no other one waits for it. */
    int (*agree)(int code);
    /* Sends `bytes` from process `from` to the first; called by these two only, in the same order. */
    void (*collect)(void *data, size_t bytes, int from);
    /* These commands between processes. */
    int (*bench)(struct common *common, struct arg_list *list);
    int (*demo)(struct common *common, struct arg_list *list);
};

/* What a command line runs between processes: the name of an operator of a mesh, bench, demo; NULL for others. */
const char *team_task(int argc, char **argv);

/* Under an MPI launcher: executes the program that is linked with MPI, if the command line is an operator of a mesh, its
   benchmark or the demo. Returns EXIT_DONE for other command lines, and EXIT_USAGE when there is no such program. */
int team_join(int argc, char **argv);

/* ---- The context of a command ---- */

struct common {
    const char *isa; /* NULL: the best */
    int threads;     /* 0: the default */
    DLDevice device; /* {0}: CPU memory only */
    const char *device_library;
    bool synchronous; /* calls on the device wait for their end */
    sy_trace_fn trace;
    bool has_isa, has_threads, has_device, has_library;
    const char *help;        /* the command, for hints */
    const struct team *team; /* NULL: a single process */
};

/* Handles --isa, --threads, --device and --device-library. Returns true when the option was one of them; *code is then 0 or EXIT_USAGE. */
bool common_option(struct common *common, struct arg_list *list, const struct arg *arg, int *code);

/* Makes the context, or prints the error and returns NULL; the second writes the error into a text. */
sy_ctx *common_context(const struct common *common);
sy_ctx *try_context(const struct common *common, char *sentence, size_t bytes);

/* A command takes the arguments after its name and returns an exit code. */
struct command {
    const char *name;
    int (*run)(struct common *common, struct arg_list *list);
};

/* The whole line: finds the command, of this part or of those that the program adds (the last has no name), and returns its
   exit code. */
int command_line(struct common *common, const struct command *more, int argc, char **argv);
extern const struct command more_commands[]; /* of the programs, cli/main/more.c */

/* ---- Commands ---- */

int command_run(struct common *common, struct arg_list *list);
int command_why(struct common *common, struct arg_list *list); /* info --why OP FILE */
int command_compare(struct common *common, struct arg_list *list);
int command_show(struct common *common, struct arg_list *list);
int command_example(struct common *common, struct arg_list *list);
int command_info(struct common *common, struct arg_list *list);
int command_ops(struct common *common, struct arg_list *list);
int command_sim_a2a(struct common *common, struct arg_list *list);
int command_complete(struct common *common, struct arg_list *list);

/* ---- Help ---- */

extern const char help_text[]; /* cli/help.txt */
void help_general(FILE *out);
int help_command(struct common *common, struct arg_list *list); /* help [CMD [OP]] */

/* Prints the page of a command (and for run of an operator); false when there is no such page. */
bool help_page(FILE *out, const char *command, const char *operator_name);

/* The closest of the names to a mistyped one, or NULL when none is close. `names` ends with NULL. */
const char *closest_name(const char *text, const char *const *names);
