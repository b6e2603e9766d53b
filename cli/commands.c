/*
 * The command line: finds the command, passes it the remaining arguments, returns its exit code.
 */
#define _XOPEN_SOURCE 700 /* SIGXFSZ */

#include <signal.h>
#include <string.h>

#include "cli.h"
#include "ops.h"

static const struct command commands[] = {
    {"run", command_run},         {"compare", command_compare}, {"show", command_show},
    {"example", command_example}, {"info", command_info},       {"help", help_command},
    {"ops", command_ops},         {"sim-a2a", command_sim_a2a}, {"complete", command_complete},
};

enum { N_COMMANDS = sizeof commands / sizeof commands[0], MOST_COMMANDS = N_COMMANDS + 8 };

static int unknown_command(const char *name, const struct command *more)
{
    const char *names[MOST_COMMANDS + 1] = {NULL};
    int n = 0;
    for (; n < N_COMMANDS; n++)
        names[n] = commands[n].name;
    for (; more->name != NULL && n < MOST_COMMANDS; more++)
        names[n++] = more->name;
    const char *const close = closest_name(name, names);
    if (close)
        return usage_error(NULL, "unknown command %s (did you mean %s?)", name, close);
    return usage_error(NULL, "unknown command %s", name);
}

static const struct command *find_command(const char *name, const struct command *more)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    while (more->name != NULL && strcmp(more->name, name) != 0)
        more++;
    return more->name != NULL ? more : NULL;
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

static int dispatch(struct common *common, const struct command *more, struct arg_list *list)
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
        const struct command *const command = find_command(arg.text, more);
        if (command == NULL)
            return unknown_command(arg.text, more);
        common->help = command->name;
        return arg_has_help(list) ? page_of(arg.text, list) : command->run(common, list);
    }
    help_general(stderr);
    return EXIT_USAGE;
}

int command_line(struct common *common, const struct command *more, int argc, char **argv)
{
    struct arg_list list = {.count = argc, .texts = argv, .next = argc > 0 ? 1 : 0};
    signal(SIGXFSZ, SIG_IGN); /* so that a write past the limit of file sizes fails and is reported */
    const int code = dispatch(common, more, &list);
    /* A failed write to stdout, such as on a full disk, must not look like success. */
    if (fflush(stdout) != 0 || ferror(stdout)) {
        fputs("switchyard: standard output cannot be written\n", stderr);
        return code == EXIT_DONE ? EXIT_USAGE : code;
    }
    return code;
}
