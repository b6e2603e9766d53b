/*
 * The command line: finds the command, passes it the remaining arguments, returns its exit code.
 */
#define _XOPEN_SOURCE 700 /* SIGXFSZ */

#include <signal.h>
#include <string.h>

#include "cli.h"
#include "ops.h"

#ifndef SWITCHYARD_BENCH
#define SWITCHYARD_BENCH 1
#endif

#if !SWITCHYARD_BENCH
static int left_out(struct common *common, struct arg_list *list)
{
    (void)list;
    return plain_error("%s is not in this build (SWITCHYARD_BENCH is off)", common->help);
}
#define command_bench left_out
#define command_demo left_out
#endif

static const struct command {
    const char *name;
    int (*run)(struct common *common, struct arg_list *list);
} commands[] = {
    {"run", command_run},         {"compare", command_compare}, {"show", command_show},
    {"example", command_example}, {"info", command_info},       {"help", help_command},
    {"ops", command_ops},         {"bench", command_bench},     {"demo", command_demo},
    {"sim-a2a", command_sim_a2a},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS + 1] = {NULL};
    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i].name;
    const char *const close = closest_name(name, names);
    if (close)
        return usage_error(NULL, "unknown command %s (did you mean %s?)", name, close);
    return usage_error(NULL, "unknown command %s", name);
}

/* COMMAND --help: for run the page of the operator when one is named. */
static int page_of(const char *command, const struct arg_list *list)
{
    for (int i = list->next; i < list->count && strcmp(command, "run") == 0; i++)
        if (find_op(list->texts[i]))
            return help_page(stdout, command, list->texts[i]) ? EXIT_DONE : EXIT_USAGE;
    if (!help_page(stdout, command, NULL))
        help_general(stdout);
    return EXIT_DONE;
}

static int dispatch(struct common *common, struct arg_list *list)
{
    for (struct arg arg = arg_next(list); arg.kind != ARG_END; arg = arg_next(list)) {
        int code = EXIT_DONE;
        if (arg.kind == ARG_OPTION) {
            if (arg_is(&arg, "version")) {
                printf("switchyard %s\n", sy_version());
                return EXIT_DONE;
            }
            if (arg_is(&arg, "help") || arg_is(&arg, "h")) {
                help_general(stdout);
                return EXIT_DONE;
            }
            if (!common_option(common, list, &arg, &code))
                return usage_error(NULL, "unknown option --%.*s", arg.length, arg.text);
            if (code != EXIT_DONE)
                return code;
            continue;
        }
        for (int i = 0; i < N_COMMANDS; i++)
            if (strcmp(commands[i].name, arg.text) == 0) {
                common->help = commands[i].name;
                return arg_has_help(list) ? page_of(arg.text, list) : commands[i].run(common, list);
            }
        return unknown_command(arg.text);
    }
    help_general(stderr);
    return EXIT_USAGE;
}

int command_line(struct common *common, int argc, char **argv)
{
    struct arg_list list = {.count = argc, .texts = argv, .next = argc > 0 ? 1 : 0};
    signal(SIGXFSZ, SIG_IGN); /* so that a write past the limit of file sizes fails and is reported */
    const int code = dispatch(common, &list);
    /* A failed write to stdout, such as on a full disk, must not look like success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("switchyard: standard output cannot be written\n", stderr);
        return code == EXIT_DONE ? EXIT_USAGE : code;
    }
    return code;
}
