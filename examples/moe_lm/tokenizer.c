/*
 * Byte-pair encoding from tokenizer.json, in its two common forms. Byte level (OLMoE, Qwen): the text is cut into words by
 * a pattern, and a word begins as the tokens of its bytes. With byte fallback (Mixtral): spaces become U+2581, one is put
 * before the text, which begins as the tokens of its letters; a letter that has none, as the tokens of its bytes. Then
 * neighbours are merged in the order of the list. Letters and digits beyond ASCII are those of the C library.
 */
#include <locale.h>
#include <strings.h>
#include <wchar.h>
#include <wctype.h>

#include "lm.h"

enum { MOST_TOKENS = 1 << 24, TEXT = -1 };

struct tokenizer {
    json_t *vocab;   /* {"token": id} */
    json_t *ranks;   /* {"id id": place in the list of merges} */
    int32_t *merged; /* [merges] the token of both */
    json_t *added;   /* {"<|endoftext|>": {"id": ...}}: cut out of a text before anything else */
    char **text;     /* [n] bytes of each token; NULL: none */
    size_t *bytes;
    int32_t n;
    enum { SPLIT_NONE, SPLIT_GPT2, SPLIT_QWEN } split;
    bool fallback;           /* of the second form */
    json_t *around;          /* tokens before each prompt, TEXT, tokens after it */
    int32_t byte_token[256]; /* -1: none */
};

/* The code point at the beginning of a text, and its length; a byte that is no UTF-8 is its own code point. */
static uint32_t code_of(const char *text, size_t *bytes)
{
    wchar_t code = 0;
    const size_t n = mbrtowc(&code, text, strnlen(text, 4), &(mbstate_t){0});
    const bool valid = n >= 1 && n <= 4;
    *bytes = valid ? n : 1;
    return valid ? (uint32_t)code : (unsigned char)text[0];
}

/* ---- tokenizer.json -------------------------------------------------------------------------------------- */

static int32_t id_of(const json_t *value)
{
    return (int32_t)json_whole(value, MOST_TOKENS, "the id of a token", "tokenizer.json");
}

static int32_t find(const struct tokenizer *t, const char *token)
{
    const json_t *const id = json_object_get(t->vocab, token);
    return id != NULL ? id_of(id) : -1;
}

/* The byte of a letter in byte-level encoding: printable bytes are themselves, the others follow from U+0100 on. */
static int byte_of(uint32_t letter)
{
    const int n = (int)letter - 256; /* the n-th byte that is not printable */
    if (n >= 0)
        return n <= 32 ? n : n <= 66 ? n + 94 : n == 67 ? 173 : -1;
    return letter <= 32 || (letter >= 127 && letter <= 160) || letter == 173 ? -1 : (int)letter;
}

/* Sets the bytes of a token of the vocabulary. */
static void read_token(struct tokenizer *t, const char *token, int32_t id)
{
    char *const text = t->text[id] = strdup(token);
    const json_t *const added = json_object_get(t->added, token);
    const bool byte = t->fallback && strlen(token) == 6 && strncmp(token, "<0x", 3) == 0 && token[5] == '>';
    size_t n = 0;
    if (added != NULL) {
        n = json_flag(added, "special", false) ? 0 : strlen(token);
    } else if (byte) {
        text[n++] = (char)strtoul(token + 3, NULL, 16);
    } else {
        for (size_t bytes; *token != 0; token += bytes) {
            const uint32_t code = code_of(token, &bytes);
            const int one = !t->fallback ? byte_of(code) : code == 0x2581 ? ' ' : -1;
            memcpy(text + n, token, bytes);
            text[n] = one >= 0 ? (char)one : text[n];
            n += one >= 0 ? 1 : bytes;
        }
    }
    t->bytes[id] = n;
    if (byte || (!t->fallback && added == NULL && n == 1))
        t->byte_token[(unsigned char)text[0]] = id;
}

static void read_vocabulary(struct tokenizer *t, const json_t *added)
{
    const char *token;
    json_t *id, *one;
    size_t i;
    t->added = json_object();
    json_array_foreach (added, i, one) {
        const int32_t number = id_of(json_object_get(one, "id"));
        const char *const content = json_text(one, "content", "");
        require(content[0] != 0, "tokenizer.json: an added token has no content");
        json_object_set(t->added, content, one);
        json_object_set_new(t->vocab, content, json_integer(number));
    }
    json_object_foreach (t->vocab, token, id) {
        t->n = id_of(id) >= t->n ? id_of(id) + 1 : t->n;
    }
    t->text = NEW(char *, t->n);
    t->bytes = NEW(size_t, t->n);
    memset(t->byte_token, 0xFF, sizeof t->byte_token);
    json_object_foreach (t->vocab, token, id) {
        free(t->text[id_of(id)]);
        read_token(t, token, id_of(id));
    }
}

/* A merge is "left right", or ["left", "right"]; both parts and the whole are tokens. */
static void read_merges(struct tokenizer *t, const json_t *merges)
{
    size_t i;
    json_t *merge;
    t->ranks = json_object();
    t->merged = NEW(int32_t, json_array_size(merges));
    json_array_foreach (merges, i, merge) {
        const char *const text = json_string_value(merge);
        const size_t n = text != NULL ? strcspn(text, " ") : 0;
        const bool split = text != NULL && text[n] == ' ';
        json_t *const pair = split ? json_pack("[s%,s]", text, n, text + n + 1) : json_incref(merge);
        const char *const left = json_string_value(json_array_get(pair, 0));
        const char *const right = json_string_value(json_array_get(pair, 1));
        require(left != NULL && right != NULL, "tokenizer.json: merge %zu is not a pair", i);
        const int32_t a = find(t, left), b = find(t, right);
        json_t *const whole = json_sprintf("%s%s", left, right), *const key = json_sprintf("%d %d", a, b);
        t->merged[i] = find(t, json_string_value(whole));
        require(a >= 0 && b >= 0 && t->merged[i] >= 0,
                "tokenizer.json: merge %zu has parts that are not in the vocabulary", i);
        if (json_object_get(t->ranks, json_string_value(key)) == NULL)
            json_object_set_new(t->ranks, json_string_value(key), json_integer((json_int_t)i));
        json_decref(pair), json_decref(whole), json_decref(key);
    }
}

/* The steps of a stage: those of its sequence, or itself. Their types must be known. NULL: there is no such stage. */
static json_t *steps_of(const json_t *all, const char *stage, const char *members, const char *known)
{
    json_t *const one = json_object_get(all, stage), *step;
    const bool sequence = strcmp(json_text(one, "type", ""), "Sequence") == 0;
    json_t *const steps = sequence ? json_object_get(one, members) : json_pack("[O]", one);
    size_t i;
    if (json_get(all, stage) == NULL)
        return NULL;
    require(json_array_size(steps) > 0, "tokenizer.json: %s is an empty sequence", stage);
    json_array_foreach (steps, i, step) {
        const char *const type = json_text(step, "type", "missing");
        char word[64];
        snprintf(word, sizeof word, " %s ", type);
        require(strstr(known, word) != NULL, "tokenizer.json: %s is %s, want one of%s", stage, type, known);
    }
    return steps;
}

/* How words are cut: by one of two regular expressions, see word_length. */
static void read_split(struct tokenizer *t, const json_t *all)
{
    const json_t *const steps = steps_of(all, "pre_tokenizer", "pretokenizers", " ByteLevel Split ");
    const json_t *const pre = json_array_get(steps, 0);
    if (pre == NULL)
        return;
    require(!json_flag(pre, "add_prefix_space", false),
            "tokenizer.json: add_prefix_space is true, want false");
    if (strcmp(json_text(pre, "type", ""), "Split") == 0) {
        const char *const regex = json_text(json_get(pre, "pattern"), "Regex", "");
        require(strstr(regex, "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|") != NULL,
                "tokenizer.json: cuts words by %s, want the patterns of GPT-2 or Qwen", regex);
        t->split = SPLIT_QWEN;
    } else if (json_flag(pre, "use_regex", true)) {
        t->split = SPLIT_GPT2;
    }
}

/* Tokens before and after every text, as a template gives them: <s> of Mixtral. */
static void read_template(struct tokenizer *t, const json_t *all)
{
    json_t *const steps = steps_of(all, "post_processor", "processors", " ByteLevel TemplateProcessing ");
    json_t *post, *part, *id;
    size_t i, k, n;
    t->around = json_array();
    json_array_foreach (steps, i, post) {
        json_array_foreach (json_object_get(post, "single"), k, part) {
            const char *const name = json_text(json_object_get(part, "SpecialToken"), "id", "");
            const json_t *const named = json_object_get(json_object_get(post, "special_tokens"), name);
            if (json_object_get(part, "Sequence") != NULL)
                json_array_append_new(t->around, json_integer(TEXT));
            json_array_foreach (json_object_get(named, "ids"), n, id) {
                json_array_append_new(t->around, json_integer(id_of(id)));
            }
        }
    }
    if (json_array_size(t->around) == 0)
        json_array_append_new(t->around, json_integer(TEXT));
}

struct tokenizer *tokenizer_open(const char *folder)
{
    const json_t *const all = json_file(folder, "tokenizer.json");
    if (all == NULL)
        return NULL;
    struct tokenizer *const t = NEW(struct tokenizer, 1);
    const json_t *const model = json_object_get(all, "model");
    const json_t *const merges = json_object_get(model, "merges");
    const char *const type = json_text(model, "type", "BPE");
    t->vocab = json_object_get(model, "vocab");
    require(strcmp(type, "BPE") == 0 && json_is_array(merges) && json_is_object(t->vocab),
            "tokenizer.json: the model is %s, want BPE with vocab and merges", type);
    require(setlocale(LC_CTYPE, "C.UTF-8") != NULL, "the locale C.UTF-8 is missing: words could not be cut");
    t->fallback = json_flag(model, "byte_fallback", false);
    if (!t->fallback)
        read_split(t, all);
    /* NFC changes nothing in a text of composed letters; the others make the spaces of byte fallback */
    steps_of(all, "normalizer", "normalizers", t->fallback ? " NFC Prepend Replace " : " NFC ");
    read_vocabulary(t, json_object_get(all, "added_tokens"));
    read_merges(t, merges);
    read_template(t, all);
    return t;
}

/* ---- Words ----------------------------------------------------------------------------------------------- */

/*
 * A letter, a digit, a newline, a space, other white space, or anything else. A text is cut with a string of these, in which
 * a letter of the pattern is one character whatever its bytes are.
 */
static char kind_of(uint32_t code)
{
    if (code == ' ' || code == '\n' || code == '\r')
        return code == ' ' ? ' ' : 'R';
    if (iswspace((wint_t)code) || code == 0xA0)
        return 'S';
    return iswalpha((wint_t)code) ? 'L' : iswdigit((wint_t)code) ? 'N' : 'O';
}

/* The length of x?y+, where x is one of the first kinds and y is the second; 0: it does not match. */
static size_t match(const char *kind, const char *x, char y)
{
    const size_t before = kind[0] != 0 && strchr(x, kind[0]) != NULL;
    const size_t n = strspn(kind + before, (char[]){y, 0});
    return n > 0 ? before + n : 0;
}

/*
 * The length of the word that begins here: the first of these patterns that matches, where L, N, O are kinds and \s is white
 * space.  GPT-2: 's|'t|... | ?L+ | ?N+ | ?O+ | \s+ without the last one before a word | \s+
 *         Qwen:  the same in any case | [^RLN]?L+ | N | ?O+R* | \s*R+ | the same two
 */
static size_t word_length(const char *text, const char *kind, bool qwen)
{
    static const char *const endings[] = {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if ((qwen ? strncasecmp : strncmp)(text, endings[i], strlen(endings[i])) == 0)
            return strlen(endings[i]);
    const size_t letters = match(kind, qwen ? " SO" : " ", 'L');
    const size_t digits = qwen ? kind[0] == 'N' : match(kind, " ", 'N');
    const size_t others = match(kind, " ", 'O');
    if (letters > 0 || digits > 0)
        return letters > 0 ? letters : digits;
    if (others > 0)
        return others + (qwen ? strspn(kind + others, "R") : 0);
    const size_t n = strspn(kind, " SR");
    for (size_t i = n; i > 0 && qwen; i--)
        if (kind[i - 1] == 'R')
            return i;
    return n > 1 && kind[n] != 0 ? n - 1 : n;
}

/* ---- Encoding: functions write tokens and return where the next one goes -------------------------------- */

/* The place of the pair (i, i + 1) in the list of merges; INT64_MAX: it is not there. */
static int64_t rank_of(const struct tokenizer *t, const int32_t *token, size_t i, size_t n)
{
    char key[32];
    if (i + 1 >= n)
        return INT64_MAX;
    snprintf(key, sizeof key, "%d %d", token[i], token[i + 1]);
    const json_t *const found = json_object_get(t->ranks, key);
    return found != NULL ? json_integer_value(found) : INT64_MAX;
}

/* Merges neighbours as the list says: the earliest pair of the list first, from the left. */
static int32_t *merge(const struct tokenizer *t, int32_t *token, size_t n)
{
    int64_t *const rank = NEW(int64_t, n);
    for (size_t i = 0; i < n; i++)
        rank[i] = rank_of(t, token, i, n);
    while (n > 1) {
        size_t best = 0;
        for (size_t i = 1; i < n; i++)
            best = rank[i] < rank[best] ? i : best;
        if (rank[best] == INT64_MAX)
            break;
        n--;
        token[best] = t->merged[rank[best]];
        memmove(token + best + 1, token + best + 2, (n - best - 1) * sizeof *token);
        memmove(rank + best + 1, rank + best + 2, (n - best - 1) * sizeof *rank);
        rank[best] = rank_of(t, token, best, n);
        if (best > 0)
            rank[best - 1] = rank_of(t, token, best - 1, n);
    }
    free(rank);
    return token + n;
}

static int32_t *encode_word(const struct tokenizer *t, int32_t *token, const char *word, size_t n)
{
    size_t tokens = 0;
    for (size_t at = 0, bytes; at < n; at += bytes) {
        char letter[5] = "";
        code_of(word + at, &bytes);
        memcpy(letter, word + at, bytes);
        const int32_t whole = t->fallback ? find(t, letter) : -1;
        if (whole >= 0)
            token[tokens++] = whole;
        for (size_t i = 0; i < bytes && whole < 0; i++) {
            token[tokens] = t->byte_token[(unsigned char)letter[i]];
            require(token[tokens++] >= 0, "the tokenizer has no token for %s of a prompt", letter);
        }
    }
    return merge(t, token, tokens);
}

/* With byte fallback a text is one word, with U+2581 before it and for every space. */
static int32_t *encode_spaced(const struct tokenizer *t, int32_t *token, const char *text, size_t n)
{
    static const char space[] = "\xE2\x96\x81";
    char *const word = NEW(char, 3 * n + 4), *end = stpcpy(word, space);
    for (size_t i = 0; i < n; i++)
        if (text[i] == ' ')
            end = stpcpy(end, space);
        else
            *end++ = text[i];
    token = encode_word(t, token, word, (size_t)(end - word));
    free(word);
    return token;
}

static int32_t *encode_words(const struct tokenizer *t, int32_t *token, const char *text, size_t n)
{
    char *const plain = strndup(text, n), *const kind = NEW(char, n + 1); /* of each letter, */
    size_t *const at = NEW(size_t, n + 1), letters = 0;                   /* and where it begins */
    for (size_t i = 0, bytes; i < n; i += bytes) {
        at[letters] = i;
        kind[letters++] = kind_of(code_of(plain + i, &bytes));
    }
    at[letters] = n;
    for (size_t i = 0, end; i < letters; i = end) {
        const char *const word = plain + at[i];
        end = t->split == SPLIT_NONE ? letters : i + word_length(word, kind + i, t->split == SPLIT_QWEN);
        token = encode_word(t, token, word, at[end] - at[i]);
    }
    free(plain), free(kind), free(at);
    return token;
}

/* The longest added token at the beginning of a text; NULL: there is none. */
static const char *added_at(const struct tokenizer *t, const char *text)
{
    const char *content, *longest = NULL;
    json_t *one;
    json_object_foreach (t->added, content, one) {
        const size_t n = strlen(content);
        if (strncmp(text, content, n) == 0 && (longest == NULL || n > strlen(longest)))
            longest = content;
    }
    return longest;
}

static int32_t *encode_text(const struct tokenizer *t, int32_t *token, const char *text)
{
    for (;;) {
        const char *added = NULL;
        size_t n = 0; /* bytes before an added token, or all */
        while (text[n] != 0 && (added = added_at(t, text + n)) == NULL)
            n++;
        if (n > 0)
            token = (t->fallback ? encode_spaced : encode_words)(t, token, text, n);
        if (added == NULL)
            return token;
        *token++ = find(t, added);
        text += n + strlen(added);
    }
}

int32_t *tokenizer_encode(const struct tokenizer *t, const char *text, int64_t *n)
{
    /* at most a token for each byte; with byte fallback three for each space, and for that before each plain text */
    int32_t *const all = NEW(int32_t, json_array_size(t->around) * (6 * strlen(text) + 4)), *end = all;
    size_t i;
    json_t *id;
    json_array_foreach (t->around, i, id) {
        if (json_integer_value(id) == TEXT)
            end = encode_text(t, end, text);
        else
            *end++ = (int32_t)json_integer_value(id);
    }
    *n = end - all;
    return all;
}

const char *tokenizer_decode(const struct tokenizer *t, int32_t token, size_t *bytes)
{
    if (token < 0 || token >= t->n || t->text[token] == NULL)
        return NULL;
    *bytes = t->bytes[token];
    return t->text[token];
}
