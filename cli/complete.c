/*
 * switchyard complete -- WORD...: what the last word of a command line can be, for the shells (cli/complete). A line is a word, a
 * tab, and what it means. All of it is read from the help pages, so that there is no second list of options. Without
 * candidates the shell completes files.
 */
#define _POSIX_C_SOURCE 200809L /* open_memstream */

#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "ops.h"

/* A line of a help page, "  --pad error|zero|skip  text": its word, its form and its text. */
struct row {
    const char *word, *form, *text;
    int word_length, form_length, text_length;
};

/* The next row from *at on; false at the end of the page. */
static bool next_row(const char **at, struct row *row)
{
    for (const char *line = *at; *line != '\0'; line = *at) {
        const char *const end = line + strcspn(line, "\n");
        *at = end + (*end == '\n');
        if (strncmp(line, "  ", 2) != 0 || strchr(" \n", line[2]))
            continue;
        const char *gap = line + 2;
        while (gap < end && strncmp(gap, "  ", 2) != 0)
            gap++;
        row->word = line + 2;
        row->word_length = (int)strcspn(row->word, " \n");
        row->form = row->word + row->word_length;
        row->form_length = (int)(gap - row->form);
        row->text = gap + strspn(gap, " ");
        row->text_length = (int)(end - row->text);
        return true;
    }
    return false;
}

static bool is_row(const struct row *row, const char *word)
{
    return strlen(word) == (size_t)row->word_length && strncmp(row->word, word, strlen(word)) == 0;
}

static void offer(const char *prefix, const char *word, int length, const char *text, int text_length)
{
    if (length > 0 && strncmp(word, prefix, strlen(prefix)) == 0 && (size_t)length >= strlen(prefix))
        printf("%.*s\t%.*s\n", length, word, text_length, text);
}

/* The options of a page, or its other words, without those that another page has too. */
static void offer_words(const char *prefix, const char *page, bool options, const char *other)
{
    struct row row, same = {0};
    while (next_row(&page, &row)) {
        const char *at = other;
        bool has = false;
        while (!has && next_row(&at, &same))
            has = same.word_length == row.word_length &&
                  memcmp(same.word, row.word, (size_t)row.word_length) == 0;
        if (!has && (row.word[0] == '-') == options)
            offer(prefix, row.word, row.word_length, row.text, row.text_length);
    }
}

/* The values of an option, those of a form "a|b|c", which may continue on the next line. False: it takes none. */
static bool offer_values(const char *prefix, const char *option, const char *page)
{
    struct row row = {0};
    while (next_row(&page, &row))
        if (is_row(&row, option)) {
            for (int i = 0; strcmp(option, "--isa") == 0 && sy_isa_name(i); i++)
                offer(prefix, sy_isa_name(i), (int)strlen(sy_isa_name(i)), "", 0);
            if (strcmp(option, "--device") == 0 && row.form_length > 2) { /* not the number of an operator */
                offer(prefix, "cpu", 3, "", 0);
                offer(prefix, "cuda", 4, "", 0);
            }
            const char *value = row.form + 1;
            while (row.form_length > 0 && value[strcspn(value, "| \n")] == '|') {
                offer(prefix, value, (int)strcspn(value, "|"), "", 0);
                value += strcspn(value, "|") + 1;
                value += strspn(value, "\n ");
                if (value[strcspn(value, "| \n")] != '|')
                    offer(prefix, value, (int)strcspn(value, " \n"), "", 0);
            }
            return row.form_length > 0;
        }
    return false;
}

/* The help of the command, or of an operator where one is named, and the general help; to be freed. */
static char *page_of(const char *command, const char *op)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *const out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    if (command)
        help_page(out, command, op);
    else
        help_general(out);
    return fclose(out) == 0 ? text : NULL;
}

/* The command among the words, as the general help lists it, and the operator after it. */
static void find_words(const struct arg_list *list, const char *commands, const char **command,
                       const char **op)
{
    for (int i = list->next; i < list->count - 1; i++) {
        const char *const word = list->texts[i], *at = commands;
        struct row row;
        if (*command && !*op && find_op(word))
            *op = word;
        while (!*command && next_row(&at, &row))
            if (is_row(&row, word))
                *command = word;
    }
}

int command_complete(struct common *common, struct arg_list *list)
{
    (void)common;
    list->next +=
        list->next < list->count && strcmp(list->texts[list->next], "--") == 0; /* so that --help is a word */
    const char *command = NULL, *op = NULL;
    const char *const prefix = list->next < list->count ? list->texts[list->count - 1] : "";
    const char *const before = list->next < list->count - 1 ? list->texts[list->count - 2] : "";
    char *const commands = page_of(NULL, NULL);
    if (!commands)
        return plain_error("out of memory");
    char *const operators = strstr(commands, "Operators:"), *const shared = strstr(operators, "Options of");
    operators[0] = '\0'; /* ends the list of the commands */
    *strstr(shared, "Try it:") = '\0';
    find_words(list, commands, &command, &op);
    const bool run = command && (strcmp(command, "run") == 0 || strcmp(command, "help") == 0);
    const bool takes_shared = !command || run || strcmp(command, "info") == 0;
    char *const page = command ? page_of(run && op ? "run" : command, run ? op : NULL) : NULL;
    const bool is_value = (page && offer_values(prefix, before, page)) ||
                          (takes_shared && offer_values(prefix, before, shared));
    if (!is_value && prefix[0] == '-') {
        offer_words(prefix, page ? page : "", true, "");
        offer_words(prefix, takes_shared ? shared : "", true, page ? page : "");
        offer(prefix, "--help", 6, "", 0);
        offer(prefix, "--version", command ? 0 : 9, "", 0);
    } else if (!is_value && !command) {
        offer_words(prefix, commands, false, "");
    } else if (!is_value && !op &&
               (run || strcmp(command, "example") == 0 || strcmp(command, "bench") == 0)) {
        for (int i = 0; sy_op_at(i); i++)
            offer(prefix, sy_op_at(i)->name, (int)strlen(sy_op_at(i)->name), sy_op_at(i)->summary,
                  (int)strlen(sy_op_at(i)->summary));
    }
    free(page);
    free(commands);
    return EXIT_DONE;
}
