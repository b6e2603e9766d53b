/*
 * Byte-pair encoding from tokenizer.json, in its two common forms. Byte level (OLMoE, Qwen): the text is cut into words by
 * a pattern, the bytes of a word are letters of an alphabet of 256, and pairs are merged in the order of the list. With
 * byte fallback (Mixtral): spaces become U+2581, one is put before the text, and what has no token of its own becomes the
 * tokens of its bytes. Letters and digits beyond ASCII are those of the C library.
 */
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wctype.h>

#include "lm.h"

enum split { SPLIT_NONE, SPLIT_GPT2, SPLIT_QWEN };

enum { MOST_AROUND = 4, MOST_TOKENS = 1 << 24 };

struct tokenizer {
    json_t *vocab;   /* {"token": id} */
    json_t *ranks;   /* {"left right": place in the list of merges} */
    json_t *special; /* {"<|endoftext|>": id}: cut out of a text before anything else */
    char **text;     /* [n] bytes of each token; NULL: none */
    size_t *bytes;
    int32_t n;
    enum split split;
    bool fallback;
    int32_t before[MOST_AROUND], after[MOST_AROUND]; /* of every text */
    int n_before, n_after;
    uint32_t letter[256]; /* of a byte */
    int16_t byte_of[512]; /* of a letter; -1: none */
};

/* The code point at text[*at], which moves on; a byte that is no UTF-8 is its own code point. */
static uint32_t code_at(const char *text, size_t n, size_t *at)
{
    const unsigned char c = (unsigned char)text[(*at)++];
    const size_t more = c >= 0xF0 ? 3 : c >= 0xE0 ? 2 : c >= 0xC0 ? 1 : 0;
    uint32_t code = c & (0x7Fu >> more);
    if (more == 0 || *at + more > n)
        return c;
    for (size_t i = 0; i < more; i++) {
        if (((unsigned char)text[*at + i] & 0xC0) != 0x80)
            return c;
        code = code << 6 | ((unsigned char)text[*at + i] & 63);
    }
    *at += more;
    return code;
}

/* The alphabet of byte-level encoding: printable bytes are themselves, the others follow from U+0100 on. */
static void make_alphabet(struct tokenizer *t)
{
    uint32_t next = 256;
    memset(t->byte_of, 0xFF, sizeof t->byte_of);
    for (int b = 0; b < 256; b++) {
        const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        t->letter[b] = printable ? (uint32_t)b : next++;
        t->byte_of[t->letter[b]] = (int16_t)b;
    }
}

/* ---- tokenizer.json -------------------------------------------------------------------------------------- */

/* The bytes that a token of the vocabulary stands for. */
static char *bytes_of(const struct tokenizer *t, const char *token, size_t *n)
{
    const size_t length = strlen(token);
    char *const bytes = NEW(char, length + 1);
    *n = 0;
    if (t->fallback && length == 6 && strncmp(token, "<0x", 3) == 0 && token[5] == '>') {
        bytes[(*n)++] = (char)strtoul(token + 3, NULL, 16);
        return bytes;
    }
    for (size_t at = 0; at < length;) {
        const size_t begin = at;
        const uint32_t code = code_at(token, length, &at);
        if (t->fallback && code == 0x2581)
            bytes[(*n)++] = ' ';
        else if (!t->fallback && code < 512 && t->byte_of[code] >= 0)
            bytes[(*n)++] = (char)t->byte_of[code];
        else
            for (size_t i = begin; i < at; i++)
                bytes[(*n)++] = token[i];
    }
    return bytes;
}

static int32_t id_of(const json_t *value)
{
    return (int32_t)json_whole(value, MOST_TOKENS, "the id of a token", "tokenizer.json");
}

static void read_vocabulary(struct tokenizer *t, const json_t *added)
{
    const char *token;
    json_t *id, *one;
    size_t i;
    json_object_foreach (t->vocab, token, id) {
        t->n = id_of(id) >= t->n ? id_of(id) + 1 : t->n;
    }
    json_array_foreach (added, i, one) {
        t->n = id_of(json_object_get(one, "id")) >= t->n ? id_of(json_object_get(one, "id")) + 1 : t->n;
    }
    t->text = NEW(char *, t->n);
    t->bytes = NEW(size_t, t->n);
    json_object_foreach (t->vocab, token, id) {
        free(t->text[id_of(id)]);
        t->text[id_of(id)] = bytes_of(t, token, &t->bytes[id_of(id)]);
    }
    t->special = json_object();
    json_array_foreach (added, i, one) {
        const char *const content = json_text(one, "content", "");
        id = json_object_get(one, "id");
        if (content[0] == 0)
            die("tokenizer.json: an added token has no content");
        json_object_set(t->special, content, id);
        free(t->text[id_of(id)]);
        t->text[id_of(id)] = strdup(content);
        t->bytes[id_of(id)] = json_flag(one, "special", false) ? 0 : strlen(content);
    }
}

/* A merge is "left right", or ["left", "right"]; both parts and the whole are tokens. */
static void read_merges(struct tokenizer *t, const json_t *merges)
{
    size_t i;
    json_t *merge;
    t->ranks = json_object();
    json_array_foreach (merges, i, merge) {
        const char *const a = json_string_value(json_is_array(merge) ? json_array_get(merge, 0) : merge);
        const char *const b = json_string_value(json_array_get(merge, 1));
        const size_t most = (a != NULL ? strlen(a) : 0) + (b != NULL ? strlen(b) : 0) + 2;
        char *const pair = NEW(char, most), *const whole = NEW(char, most);
        snprintf(pair, most, "%s%s%s", a != NULL ? a : "", b != NULL ? " " : "", b != NULL ? b : "");
        char *const space = b != NULL ? pair + strlen(a != NULL ? a : "") : strchr(pair, ' ');
        if (a == NULL || space == NULL || (json_is_array(merge) && b == NULL))
            die("tokenizer.json: merge %zu is not a pair", i);
        snprintf(whole, most, "%.*s%s", (int)(space - pair), pair, space + 1);
        *space = 0;
        if (json_object_get(t->vocab, pair) == NULL || json_object_get(t->vocab, space + 1) == NULL ||
            json_object_get(t->vocab, whole) == NULL)
            die("tokenizer.json: merge %zu has parts that are not in the vocabulary", i);
        *space = ' ';
        if (json_object_get(t->ranks, pair) == NULL)
            json_object_set_new(t->ranks, pair, json_integer((json_int_t)i));
        free(pair), free(whole);
    }
}

/* Which pattern cuts words; the patterns themselves are regular expressions, of which two are known. */
static enum split split_of(const json_t *pre)
{
    const char *const type = json_text(pre, "type", "");
    if (strcmp(type, "Sequence") == 0) {
        const json_t *const first = json_array_get(json_object_get(pre, "pretokenizers"), 0);
        if (strcmp(json_text(first, "type", "Sequence"), "Sequence") == 0)
            die("tokenizer.json: the sequence of pre-tokenizers begins with none, or with another sequence");
        return split_of(first);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        if (json_flag(pre, "add_prefix_space", false))
            die("tokenizer.json: add_prefix_space is true, want false");
        return json_flag(pre, "use_regex", true) ? SPLIT_GPT2 : SPLIT_NONE;
    }
    if (strcmp(type, "Split") != 0)
        die("tokenizer.json: the pre-tokenizer is %s, want ByteLevel or Split", type);
    const char *const regex = json_text(json_get(pre, "pattern"), "Regex", "");
    if (strstr(regex, "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|") == NULL)
        die("tokenizer.json: cuts words by %s, want the patterns of GPT-2 or Qwen", regex);
    return SPLIT_QWEN;
}

/* What changes a text before it is encoded: the spaces of byte fallback, or nothing that a text of composed letters shows. */
static void check_normalizer(const json_t *one, bool fallback)
{
    const char *const type = json_text(one, "type", "");
    size_t i;
    json_t *part;
    if (one == NULL || strcmp(type, "NFC") == 0 ||
        (fallback && (strcmp(type, "Prepend") == 0 || strcmp(type, "Replace") == 0)))
        return;
    if (strcmp(type, "Sequence") != 0)
        die("tokenizer.json: the normalizer is %s, want none, NFC, or the spaces of byte fallback", type);
    json_array_foreach (json_object_get(one, "normalizers"), i, part) {
        check_normalizer(part, fallback);
    }
}

/* Tokens before and after every text, as a template says: <s> of Mixtral. */
static void read_template(struct tokenizer *t, const json_t *post)
{
    const char *const type = json_text(post, "type", "");
    size_t i, k;
    json_t *part, *id;
    bool after = false;
    if (post == NULL || strcmp(type, "ByteLevel") == 0) /* of offsets only */
        return;
    if (strcmp(type, "Sequence") != 0 && strcmp(type, "TemplateProcessing") != 0)
        die("tokenizer.json: the post-processor is %s, want ByteLevel or TemplateProcessing", type);
    json_array_foreach (json_object_get(post, "processors"), i, part) {
        read_template(t, part);
    }
    json_array_foreach (json_object_get(post, "single"), i, part) {
        const char *const name = json_text(json_object_get(part, "SpecialToken"), "id", "");
        const json_t *const named = json_object_get(json_object_get(post, "special_tokens"), name);
        after = after || json_object_get(part, "Sequence") != NULL;
        json_array_foreach (json_object_get(named, "ids"), k, id) {
            int *const n = after ? &t->n_after : &t->n_before;
            if (*n == MOST_AROUND)
                die("tokenizer.json: a template with more than %d tokens", MOST_AROUND);
            (after ? t->after : t->before)[(*n)++] = id_of(id);
        }
    }
}

struct tokenizer *tokenizer_open(const char *folder)
{
    json_t *const all = json_file(folder, "tokenizer.json"), *const model = json_object_get(all, "model");
    if (all == NULL)
        return NULL;
    const json_t *const merges = json_object_get(model, "merges"), *const pre =
                                                                       json_get(all, "pre_tokenizer");
    const char *const type = json_text(model, "type", "BPE");
    struct tokenizer *const t = NEW(struct tokenizer, 1);
    t->vocab = json_object_get(model, "vocab");
    if (strcmp(type, "BPE") != 0 || !json_is_array(merges) || !json_is_object(t->vocab))
        die("tokenizer.json: the model is %s, want BPE with vocab and merges", type);
    if (setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        die("the locale C.UTF-8 is missing: words could not be cut");
    t->fallback = json_flag(model, "byte_fallback", false);
    t->split = t->fallback || pre == NULL ? SPLIT_NONE : split_of(pre);
    check_normalizer(json_get(all, "normalizer"), t->fallback);
    make_alphabet(t);
    read_vocabulary(t, json_object_get(all, "added_tokens"));
    read_template(t, json_get(all, "post_processor"));
    read_merges(t, merges);
    return t;
}

/* ---- Words --------------------------------------------------------------------------------------------- */

enum kind { OTHER, LETTER, DIGIT, SPACE, END };

static enum kind kind_at(const char *text, size_t n, size_t at, size_t *next)
{
    if (at >= n)
        return END;
    *next = at;
    const uint32_t c = code_at(text, n, next);
    if (c < 128)
        return (c | 32) >= 'a' && (c | 32) <= 'z' ? LETTER
               : c >= '0' && c <= '9'             ? DIGIT
               : c == ' ' || (c >= 9 && c <= 13)  ? SPACE
                                                  : OTHER;
    return iswspace((wint_t)c) || c == 0xA0 ? SPACE
           : iswalpha((wint_t)c)            ? LETTER
           : iswdigit((wint_t)c)            ? DIGIT
                                            : OTHER;
}

static size_t run_of(enum kind kind, const char *text, size_t n, size_t at)
{
    for (size_t next; kind_at(text, n, at, &next) == kind;)
        at = next;
    return at;
}

/* The end of 's, 't, 're, 've, 'm, 'll, 'd; `at` when there is none. */
static size_t contraction(const char *text, size_t n, size_t at, bool any_case)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t k = 0;
        while (endings[i][k] != 0 && at + k < n &&
               (any_case && k > 0 ? text[at + k] | 32 : text[at + k]) == endings[i][k])
            k++;
        if (endings[i][k] == 0)
            return at + k;
    }
    return at;
}

static bool is_newline(char c)
{
    return c == '\n' || c == '\r';
}

/* The end of the word that begins at `at`. */
static size_t word_end(enum split split, const char *text, size_t n, size_t at)
{
    size_t next = at, second = at, end = contraction(text, n, at, split == SPLIT_QWEN);
    if (end > at)
        return end;
    const enum kind first = kind_at(text, n, at, &next), then = kind_at(text, n, next, &second);
    if (first == LETTER)
        return run_of(LETTER, text, n, at);
    if (split == SPLIT_QWEN) {
        if ((first == OTHER || first == SPACE) && !is_newline(text[at]) && then == LETTER)
            return run_of(LETTER, text, n, next);
        if (first == DIGIT)
            return next;
    } else if (first == DIGIT || (text[at] == ' ' && (then == LETTER || then == DIGIT))) {
        return run_of(first == DIGIT ? DIGIT : then, text, n, first == DIGIT ? at : next);
    }
    if (first == OTHER || (text[at] == ' ' && then == OTHER)) {
        end = run_of(OTHER, text, n, first == OTHER ? at : next);
        while (split == SPLIT_QWEN && end < n && is_newline(text[end]))
            end++;
        return end;
    }
    end = run_of(SPACE, text, n, at); /* spaces; the last one goes with what follows */
    if (split == SPLIT_QWEN)
        for (size_t i = end; i > at; i--)
            if (is_newline(text[i - 1]))
                return i;
    if (end == n)
        return end;
    size_t last = at;
    for (size_t i = at; i < end; i = next) {
        kind_at(text, n, i, &next);
        last = i;
    }
    return last > at ? last : end;
}

/* ---- Encoding -------------------------------------------------------------------------------------------- */

struct tokens {
    int32_t *token;
    int64_t n;
};

struct piece { /* of a word: letters [at, at + n), and the place of the merge with the next piece */
    size_t at, n;
    int64_t rank;
};

/* Looks up letters[at, at + n), with a space after the first `left` of them where left > 0. */
static int64_t look_up(const json_t *object, const char *letters, size_t at, size_t n, size_t left)
{
    char near[64], *const key = n + 2 > sizeof near ? NEW(char, n + 2) : near;
    if (left > 0)
        snprintf(key, n + 2, "%.*s %.*s", (int)left, letters + at, (int)(n - left), letters + at + left);
    else
        snprintf(key, n + 2, "%.*s", (int)n, letters + at);
    const json_t *const found = json_object_get(object, key);
    if (key != near)
        free(key);
    return found != NULL ? (int64_t)json_number_value(found) : -1; /* 5.0 is a whole number too */
}

static void rank_pair(const struct tokenizer *t, const char *letters, struct piece *p, bool last)
{
    const int64_t rank = last ? -1 : look_up(t->ranks, letters, p->at, p->n + p[1].n, p->n);
    p->rank = rank < 0 ? INT64_MAX : rank;
}

/* Merges neighbours as the list says: the earliest pair of the list first, from the left. */
static size_t merge(const struct tokenizer *t, const char *letters, struct piece *piece, size_t n)
{
    for (size_t i = 0; i < n; i++)
        rank_pair(t, letters, &piece[i], i + 1 == n);
    while (n > 0) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            best = piece[i].rank < piece[best].rank ? i : best;
        if (piece[best].rank == INT64_MAX)
            break;
        piece[best].n += piece[best + 1].n;
        memmove(&piece[best + 1], &piece[best + 2], (n - best - 2) * sizeof *piece);
        n--;
        rank_pair(t, letters, &piece[best], best + 1 == n);
        if (best > 0)
            rank_pair(t, letters, &piece[best - 1], false);
    }
    return n;
}

/* The tokens of a word, given in letters of the vocabulary. */
static void encode_letters(const struct tokenizer *t, struct tokens *all, const char *letters, size_t n)
{
    struct piece *const piece = NEW(struct piece, n);
    size_t pieces = 0;
    for (size_t at = 0; at < n; pieces++) {
        piece[pieces].at = at;
        code_at(letters, n, &at);
        piece[pieces].n = at - piece[pieces].at;
    }
    pieces = merge(t, letters, piece, pieces);
    for (size_t i = 0; i < pieces; i++) {
        const int64_t whole = look_up(t->vocab, letters, piece[i].at, piece[i].n, 0);
        if (whole >= 0)
            all->token[all->n++] = (int32_t)whole;
        for (size_t k = 0; k < piece[i].n && whole < 0; k++) {
            char byte[8];
            snprintf(byte, sizeof byte, "<0x%02X>", (unsigned)(unsigned char)letters[piece[i].at + k]);
            const int64_t token = t->fallback ? look_up(t->vocab, byte, 0, 6, 0) : -1;
            if (token < 0)
                die("the tokenizer has no token for %.*s of a prompt", (int)piece[i].n,
                    letters + piece[i].at);
            all->token[all->n++] = (int32_t)token;
        }
    }
    free(piece);
}

/* Text without special tokens. */
static void encode_plain(const struct tokenizer *t, struct tokens *all, const char *text, size_t n)
{
    char *const letters = NEW(char, 3 * n + 4);
    for (size_t at = 0, end; at < n; at = end) {
        size_t to = 0;
        end = t->split == SPLIT_NONE ? n : word_end(t->split, text, n, at);
        if (t->fallback)
            to = (size_t)sprintf(letters, "\xE2\x96\x81");
        for (size_t i = at; i < end; i++) {
            const uint32_t code = t->letter[(unsigned char)text[i]]; /* below 0x200 */
            if (t->fallback && text[i] == ' ') {
                to += (size_t)sprintf(letters + to, "\xE2\x96\x81");
            } else if (t->fallback || code < 0x80) {
                letters[to++] = text[i];
            } else {
                letters[to++] = (char)(0xC0 | code >> 6);
                letters[to++] = (char)(0x80 | (code & 63));
            }
        }
        encode_letters(t, all, letters, to);
    }
    free(letters);
}

/* The length of the longest special token at the beginning of a text; 0: there is none. */
static size_t special_at(const struct tokenizer *t, const char *text, int32_t *token)
{
    const char *content;
    json_t *id;
    size_t longest = 0;
    json_object_foreach (t->special, content, id) {
        if (strlen(content) > longest && strncmp(text, content, strlen(content)) == 0) {
            longest = strlen(content);
            *token = id_of(id);
        }
    }
    return longest;
}

int32_t *tokenizer_encode(const struct tokenizer *t, const char *text, int64_t *n)
{
    const size_t length = strlen(text);
    size_t begin = 0;
    int32_t token = 0;
    /* at most a token for each byte, and one more for the space before each plain text of byte fallback */
    struct tokens all = {NEW(int32_t, 6 * length + 2 * (size_t)MOST_AROUND + 3), 0};
    for (int i = 0; i < t->n_before; i++)
        all.token[all.n++] = t->before[i];
    for (size_t at = 0, special; at<length; at += special> 0 ? special : 1) {
        special = special_at(t, text + at, &token);
        if (special == 0)
            continue;
        encode_plain(t, &all, text + begin, at - begin);
        all.token[all.n++] = token;
        begin = at + special;
    }
    encode_plain(t, &all, text + begin, length - begin);
    for (int i = 0; i < t->n_after; i++)
        all.token[all.n++] = t->after[i];
    *n = all.n;
    return all.token;
}

const char *tokenizer_decode(const struct tokenizer *t, int32_t token, size_t *bytes)
{
    if (token < 0 || token >= t->n || t->text[token] == NULL)
        return NULL;
    *bytes = t->bytes[token];
    return t->text[token];
}
