/*
 * Byte-pair encoding from tokenizer.json, in its two common forms. Byte level (OLMoE, Qwen): the text is cut into words by
 * patterns, and a word begins as the tokens of its bytes. With byte fallback (Mixtral): a space is put before the text, which is
 * one word and begins as the tokens of its characters; a character that is no token is those of its bytes. Then neighbours are
 * merged in the order of the list. Letters and digits beyond ASCII are those of the C library.
 */
#include <locale.h>
#include <regex.h>
#include <wchar.h>

#include "../lm.h"

static const char file[] = "tokenizer.json";

enum { MOST_TOKENS = 1 << 24, SPACE = 256, LETTERS, MOST_PATTERNS = 8 };

struct tokenizer {
    json_t *vocab;      /* {"token": id} */
    const char **token; /* [n] the token of an id; NULL: none */
    int32_t n;
    json_t *ranks;              /* {"left right": place in the list of merges} */
    int32_t *merged;            /* what the merge at this place makes */
    json_t *added;              /* {"<|endoftext|>": {"id": ...}}: cut out of a text before anything else */
    const char *before, *after; /* added tokens around a prompt */
    bool fallback;              /* the second form */
    char letter[LETTERS][8];    /* how tokens write each byte, and SPACE */
    regex_t pattern[MOST_PATTERNS];
    int patterns; /* 0: a text is one word */
};

/*
 * A word is the first group of the first pattern that matches. These are the regular expressions of the files (read_split),
 * in terms of POSIX. The last two are \s+(?!\S)|\s+ there: the last space before a word belongs to the word.
 */
#define L "[:alpha:]"
#define N "[:digit:]"
#define S "[:space:]\xC2\xA0" /* and U+00A0 */
#define SPACES "^([" S "]+)[" S "][^" S "]", "^([" S "]+)"
static const char *const gpt2[MOST_PATTERNS] = {"^('s|'t|'re|'ve|'m|'ll|'d)", "^( ?[" L "]+)",
                                                "^( ?[" N "]+)", "^( ?[^" S L N "]+)", SPACES};
static const char *const qwen[MOST_PATTERNS] = {"^('[sStTmMdD]|'[rRvV][eE]|'[lL][lL])",
                                                "^([^\r\n" L N "]?[" L "]+)",
                                                "^([" N "])",
                                                "^( ?[^" S L N "]+[\r\n]*)",
                                                "^([" S "]*[\r\n]+)",
                                                SPACES};

/* ---- tokenizer.json ---- */

static int32_t id_of(const json_t *value)
{
    return (int32_t)json_whole(file, value, 0, MOST_TOKENS, "the id of a token");
}

static int32_t find(const struct tokenizer *t, const char *token)
{
    const json_t *const id = json_object_get(t->vocab, token);
    return id != NULL ? id_of(id) : -1;
}

/* Byte level: printable bytes are themselves, the others are U+0100 and those that follow. Fallback: <0x00> to <0xFF>. */
static void make_letters(struct tokenizer *t)
{
    wint_t next = 256;
    for (int b = 0; b < 256; b++) {
        const bool printable = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (t->fallback)
            snprintf(t->letter[b], sizeof *t->letter, "<0x%02X>", (unsigned)b);
        else
            snprintf(t->letter[b], sizeof *t->letter, "%lc", printable ? (wint_t)b : next++);
    }
    snprintf(t->letter[SPACE], sizeof *t->letter, "%s", t->fallback ? "\xE2\x96\x81" /* U+2581 */ : " ");
}

static void read_vocabulary(struct tokenizer *t, const json_t *added)
{
    const char *token;
    json_t *id, *one;
    size_t i;
    t->added = json_object();
    json_array_foreach (added, i, one) {
        const char *const content = json_text(file, one, "content", "");
        require(content[0] != 0, "tokenizer.json: an added token has no content");
        json_object_set(t->added, content, one);
        json_object_set_new(t->vocab, content, json_integer(id_of(json_object_get(one, "id"))));
    }
    json_object_foreach (t->vocab, token, id) {
        t->n = id_of(id) >= t->n ? id_of(id) + 1 : t->n;
    }
    t->token = NEW(const char *, t->n);
    json_object_foreach (t->vocab, token, id) {
        t->token[id_of(id)] = token;
    }
}

/* A merge is "left right", or ["left", "right"]. */
static void read_merges(struct tokenizer *t, const json_t *merges)
{
    size_t i;
    json_t *merge;
    t->ranks = json_object();
    t->merged = NEW(int32_t, json_array_size(merges));
    json_array_foreach (merges, i, merge) {
        const char *left, *right;
        const bool array = json_unpack(merge, "[s,s]", &left, &right) == 0;
        json_t *const pair = array ? json_sprintf("%s %s", left, right) : json_incref(merge);
        const char *const text = json_is_string(pair) ? json_string_value(pair) : "";
        const size_t space = strcspn(text, " ");
        require(text[space] == ' ', "tokenizer.json: merge %zu is not a pair", i);
        json_t *const whole = json_sprintf("%.*s%s", (int)space, text, text + space + 1);
        t->merged[i] = find(t, json_string_value(whole));
        require(t->merged[i] >= 0, "tokenizer.json: merge %zu makes %s, which is no token", i,
                json_string_value(whole));
        json_object_set_new(t->ranks, text, json_integer((json_int_t)i));
        json_decref(pair), json_decref(whole);
    }
}

/* The steps of a stage: those of its sequence, or itself. Their types must be among those known. */
static json_t *steps_of(const json_t *all, const char *stage, const char *members, const char *known)
{
    json_t *const one = json_get(all, stage), *const sequence = json_object_get(one, members), *step;
    json_t *const steps = sequence != NULL ? sequence : json_pack(one != NULL ? "[O]" : "[]", one);
    size_t i;
    json_array_foreach (steps, i, step) {
        const char *const type = json_text(file, step, "type", "missing");
        char word[64];
        snprintf(word, sizeof word, " %s ", type);
        require(strstr(known, word) != NULL, "tokenizer.json: %s is %s, want one of%s", stage, type, known);
    }
    return steps;
}

/* How words are cut. */
static void read_split(struct tokenizer *t, const json_t *all)
{
    const json_t *const first =
        json_array_get(steps_of(all, "pre_tokenizer", "pretokenizers", " ByteLevel Split "), 0);
    const char *const *patterns =
        json_flag(file, first, "use_regex", first != NULL) ? gpt2 : (const char *[]){NULL};
    require(!json_flag(file, first, "add_prefix_space", false),
            "tokenizer.json: add_prefix_space is true, want false");
    if (strcmp(json_text(file, first, "type", ""), "Split") == 0) {
        const char *const regex = json_text(file, json_get(first, "pattern"), "Regex", "");
        require(strstr(regex, "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|") != NULL,
                "tokenizer.json: cuts words by %s, want the patterns of GPT-2 or Qwen", regex);
        patterns = qwen;
    }
    for (; patterns[t->patterns] != NULL; t->patterns++)
        require(regcomp(&t->pattern[t->patterns], patterns[t->patterns], REG_EXTENDED) == 0,
                "the C library cannot read the pattern %s", patterns[t->patterns]);
}

/* A template puts added tokens around a prompt: [{"SpecialToken": {"id": "<s>"}}, {"Sequence": ...}] is that of Mixtral. */
static void read_template(struct tokenizer *t, const json_t *all)
{
    json_t *const steps = steps_of(all, "post_processor", "processors", " ByteLevel TemplateProcessing ");
    json_t *step, *part;
    size_t i, k;
    const char **around = &t->before;
    t->before = t->after = "";
    json_array_foreach (steps, i, step) {
        json_array_foreach (json_object_get(step, "single"), k, part) {
            const char *const name = json_text(file, json_object_get(part, "SpecialToken"), "id", "");
            require(name[0] == 0 || json_object_get(t->added, name) != NULL,
                    "tokenizer.json: the template has %s, which is no added token", name);
            *around = json_string_value(json_sprintf("%s%s", *around, name));
            around = name[0] == 0 ? &t->after : around;
        }
    }
}

struct tokenizer *tokenizer_open(const char *folder)
{
    const json_t *const all = json_file(folder, file);
    if (all == NULL)
        return NULL;
    struct tokenizer *const t = NEW(struct tokenizer, 1);
    const json_t *const model = json_object_get(all, "model");
    const json_t *const merges = json_object_get(model, "merges");
    const char *const type = json_text(file, model, "type", "BPE");
    t->vocab = json_object_get(model, "vocab");
    require(strcmp(type, "BPE") == 0 && json_is_array(merges) && json_is_object(t->vocab),
            "tokenizer.json: the model is %s, want BPE with vocab and merges", type);
    require(setlocale(LC_CTYPE, "C.UTF-8") != NULL, "the locale C.UTF-8 is missing: words could not be cut");
    t->fallback = json_flag(file, model, "byte_fallback", false);
    if (!t->fallback)
        read_split(t, all);
    /* NFC changes nothing in a text of composed letters; the others make the spaces of byte fallback */
    steps_of(all, "normalizer", "normalizers", t->fallback ? " NFC Prepend Replace " : " NFC ");
    make_letters(t);
    read_vocabulary(t, json_object_get(all, "added_tokens"));
    read_merges(t, merges);
    read_template(t, all);
    return t;
}

/* ---- Encoding: functions write tokens and return where the next one goes ---- */

/* The place of two neighbours in the list of merges; INT32_MAX: they are not there. */
static int32_t rank_of(const struct tokenizer *t, int32_t left, int32_t right)
{
    json_t *const pair = json_sprintf("%s %s", t->token[left], t->token[right]);
    const json_t *const rank = json_object_get(t->ranks, json_string_value(pair));
    json_decref(pair);
    return rank != NULL ? (int32_t)json_integer_value(rank) : INT32_MAX;
}

/* Pairs that may be merged, as rank << 32 | place: a heap, the smallest first. */
struct pairs {
    uint64_t *key;
    size_t n;
};

static void push(struct pairs *p, int32_t rank, int64_t at)
{
    const uint64_t key = (uint64_t)rank << 32 | (uint64_t)at;
    size_t i = p->n++;
    for (; i > 0 && p->key[(i - 1) / 2] > key; i = (i - 1) / 2)
        p->key[i] = p->key[(i - 1) / 2];
    p->key[i] = key;
}

static uint64_t pop(struct pairs *p)
{
    const uint64_t first = p->key[0], last = p->key[--p->n];
    size_t i = 0;
    for (size_t child; (child = 2 * i + 1) < p->n; i = child) {
        child += child + 1 < p->n && p->key[child + 1] < p->key[child];
        if (p->key[child] >= last)
            break;
        p->key[i] = p->key[child];
    }
    p->key[i] = last;
    return first;
}

/* Merges neighbours as the list says: the earliest pair of the list first, from the left. Tokens are a linked list, and a pair
   whose rank has changed since it was pushed is skipped. */
static int32_t *merge(const struct tokenizer *t, int32_t *token, int64_t n)
{
    int32_t *const rank = NEW(int32_t, n); /* of token i and the next one */
    int64_t *const next = NEW(int64_t, n), *const before = NEW(int64_t, n);
    struct pairs pairs = {.key = NEW(uint64_t, 3 * n)};
    for (int64_t i = 0; i < n; i++) {
        next[i] = i + 1;
        before[i] = i - 1;
        rank[i] = i + 1 < n ? rank_of(t, token[i], token[i + 1]) : INT32_MAX;
        if (rank[i] < INT32_MAX)
            push(&pairs, rank[i], i);
    }
    while (pairs.n > 0) {
        const uint64_t key = pop(&pairs);
        const int64_t at = (int64_t)(key & UINT32_MAX), gone = next[at];
        if (rank[at] != (int32_t)(key >> 32))
            continue;
        token[at] = t->merged[rank[at]];
        next[at] = next[gone];
        rank[gone] = INT32_MAX;
        if (next[at] < n)
            before[next[at]] = at;
        for (int64_t i = before[at] >= 0 ? before[at] : at; i <= at; i = next[i]) {
            rank[i] = next[i] < n ? rank_of(t, token[i], token[next[i]]) : INT32_MAX;
            if (rank[i] < INT32_MAX)
                push(&pairs, rank[i], i);
        }
    }
    int32_t *end = token;
    for (int64_t i = 0; i < n; i = next[i])
        *end++ = token[i];
    free(rank), free(next), free(before), free(pairs.key);
    return end;
}

static int32_t *encode_word(const struct tokenizer *t, int32_t *token, const char *text, size_t n)
{
    int32_t *end = token;
    for (size_t at = 0, bytes; at < n; at += bytes) {
        char character[8] = "";
        bytes = t->fallback ? mbrlen(text + at, n - at, &(mbstate_t){0}) : 1;
        bytes = bytes <= 4 ? bytes : 1; /* more: not UTF-8 */
        memcpy(character, text + at, bytes);
        const int32_t whole = t->fallback ? find(t, character[0] == ' ' ? t->letter[SPACE] : character) : -1;
        if (whole >= 0)
            *end++ = whole;
        for (size_t b = 0; b < bytes && whole < 0; b++) {
            const char *const letter = t->letter[(unsigned char)character[b]];
            *end = find(t, letter);
            require(*end++ >= 0, "the tokenizer has no token for %s of a prompt", letter);
        }
    }
    return merge(t, token, end - token);
}

static size_t word_length(const struct tokenizer *t, const char *text)
{
    regmatch_t found[2];
    for (int i = 0; i < t->patterns; i++)
        if (regexec(&t->pattern[i], text, 2, found, 0) == 0)
            return (size_t)found[1].rm_eo;
    return t->patterns > 0 ? 1 : strlen(text); /* 1: a byte that is not UTF-8 */
}

/* The longest added token at the beginning of a text; "": there is none. */
static const char *added_at(const struct tokenizer *t, const char *text)
{
    const char *content, *longest = "";
    json_t *one;
    json_object_foreach (t->added, content, one) {
        if (strncmp(text, content, strlen(content)) == 0 && strlen(content) > strlen(longest))
            longest = content;
    }
    return longest;
}

/* Added tokens are cut out of a prompt; what is between them is cut into words. */
int32_t *tokenizer_encode(const struct tokenizer *t, const char *text, int64_t *n)
{
    const size_t most = strlen(t->before) + strlen(text) + strlen(t->after) + 1;
    char *const prompt = NEW(char, most), *const plain = NEW(char, most + 1);
    /* at most a token for each byte, and one for the space that byte fallback puts before each plain text */
    int32_t *const all = NEW(int32_t, 2 * most), *token = all;
    snprintf(prompt, most, "%s%s%s", t->before, text, t->after);
    for (const char *at = prompt, *added = ""; *at != 0; at += strlen(added)) {
        size_t bytes = 0; /* before an added token, or all */
        while (at[bytes] != 0 && *(added = added_at(t, at + bytes)) == 0)
            bytes++;
        snprintf(plain, most + 1, "%s%.*s", t->fallback && bytes > 0 ? " " : "", (int)bytes, at);
        for (size_t word = 0, length; plain[word] != 0; word += length) {
            length = word_length(t, plain + word);
            token = encode_word(t, token, plain + word, length);
        }
        at += bytes;
        if (*added != 0)
            *token++ = find(t, added);
    }
    free(prompt), free(plain);
    *n = token - all;
    return all;
}

char *tokenizer_decode(const struct tokenizer *t, int32_t token, size_t *bytes)
{
    const char *from = token >= 0 && token < t->n ? t->token[token] : NULL;
    if (from == NULL)
        return NULL;
    const json_t *const added = json_object_get(t->added, from);
    char *const text = strdup(from), *to = text;
    for (int l; *from != 0 && added == NULL; from += l < LETTERS ? strlen(t->letter[l]) : 1) {
        for (l = 0; l < LETTERS && strncmp(from, t->letter[l], strlen(t->letter[l])) != 0; l++)
            continue;
        char letter = *from;
        if (l < LETTERS)
            letter = (char)l;
        if (l == SPACE)
            letter = ' ';
        *to++ = letter;
    }
    *bytes = added == NULL                              ? (size_t)(to - text)
             : json_flag(file, added, "special", false) ? 0
                                                        : strlen(text);
    return text;
}
