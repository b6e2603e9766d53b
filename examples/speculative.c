/*
 * Speculative decoding in which no draft changes a token: the same text comes with drafts and without, only in fewer calls of
 * the model. Two requests, one greedy, one sampled. The model is a toy: logits that follow from the last two tokens.
 *
 *     cc -std=c11 examples/speculative.c -o speculative $(pkg-config --cflags --libs switchyard)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <switchyard.h>

enum { VOCAB = 26, LENGTH = 40, DRAFTS = 4, ROWS = DRAFTS + 1 };

struct request {
    const char *name;
    float temperature;
    int64_t seed;
    int64_t text[LENGTH + ROWS]; /* tokens so far, and room for drafts after them */
    int64_t length;
    int calls;
};

/* The model: what follows a text. Any function of the text will do. */
static void model(const int64_t *text, int64_t n, float *logits)
{
    const int64_t a = n > 0 ? text[n - 1] : 7, b = n > 1 ? text[n - 2] : 3;
    for (int64_t t = 0; t < VOCAB; t++)
        logits[t] = (float)((t * t * 5 + a * 7 * t + b * 11 + a * b) % 97) / 12;
}

/* The draft model: cheap, and not always right. It guesses the best token of the model, but every fourth one. */
static int64_t guess(const int64_t *text, int64_t n)
{
    float logits[VOCAB];
    int64_t best = 0;
    model(text, n, logits);
    for (int64_t t = 1; t < VOCAB; t++)
        best = logits[t] > logits[best] ? t : best;
    return n % 4 == 3 ? (best + 1) % VOCAB : best;
}

static void check(sy_ctx *ctx, sy_status status)
{
    if (status == SY_OK)
        return;
    fprintf(stderr, "%s\n", sy_ctx_error(ctx));
    exit(1);
}

/* One token for each call of the model. */
static void decode(sy_ctx *ctx, struct request *r)
{
    float logits[VOCAB];
    int64_t token = 0;
    sy_view x, t, seed, offset, stream, out;
    for (; r->length < LENGTH; r->calls++) {
        model(r->text, r->length, logits);
        check(ctx, sy_sample(ctx, &(sy_sample_args){.logits = sy_mat(&x, logits, SY_F32, 1, VOCAB),
                                                    .temperature = sy_number_f32(&t, r->temperature),
                                                    .seed = sy_number_i64(&seed, r->seed),
                                                    .offset = sy_number_i64(&offset, r->length),
                                                    .stream = sy_number_i64(&stream, 0),
                                                    .token = sy_vec(&out, &token, SY_I64, 1)}));
        r->text[r->length++] = token;
    }
}

/* Up to ROWS tokens for each call of the model, which computes the rows of all drafts at once. */
static void decode_with_drafts(sy_ctx *ctx, struct request *r)
{
    float logits[ROWS][VOCAB];
    int64_t draft[ROWS], token[ROWS];
    int32_t count = 0;
    sy_view d, t, seed, offset, stream, out, n;
    const DLTensor x = sy_tensor(logits, SY_F32, 3, (const int64_t[]){1, ROWS, VOCAB});
    for (; r->length < LENGTH; r->calls++) {
        for (int64_t i = 0; i < ROWS; i++) {
            if (i > 0)
                draft[i] = r->text[r->length + i - 1] = guess(r->text, r->length + i - 1);
            model(r->text, r->length + i, logits[i]);
        }
        check(ctx, sy_sample_verify(
                       ctx, &(sy_sample_verify_args){.logits = &x,
                                                     .draft_token = sy_mat(&d, draft, SY_I64, 1, ROWS),
                                                     .temperature = sy_number_f32(&t, r->temperature),
                                                     .seed = sy_number_i64(&seed, r->seed),
                                                     .offset = sy_number_i64(&offset, r->length),
                                                     .stream = sy_number_i64(&stream, 0),
                                                     .token = sy_mat(&out, token, SY_I64, 1, ROWS),
                                                     .count = sy_vec(&n, &count, SY_I32, 1)}));
        memcpy(r->text + r->length, token, (size_t)count * sizeof *token);
        r->length += count;
    }
}

static void print(const struct request *r, const char *how)
{
    printf("%-8s %-15s ", r->name, how);
    for (int64_t i = 0; i < LENGTH; i++)
        putchar((int)('a' + r->text[i]));
    printf("  %2d calls of the model\n", r->calls);
}

int main(void)
{
    const struct request requests[] = {{.name = "greedy", .temperature = 0, .seed = 1},
                                       {.name = "sampled", .temperature = .5f, .seed = 2}};
    sy_ctx *ctx;
    bool equal = true;
    if (sy_ctx_create(&ctx, NULL) != SY_OK)
        return 1;
    for (int i = 0; i < 2; i++) {
        struct request plain = requests[i], fast = requests[i];
        decode(ctx, &plain);
        decode_with_drafts(ctx, &fast);
        print(&plain, "without drafts");
        print(&fast, "with drafts");
        equal = equal && memcmp(plain.text, fast.text, LENGTH * sizeof *plain.text) == 0 &&
                fast.calls < plain.calls;
    }
    printf("%s\n", equal ? "The same tokens, in fewer calls." : "The tokens differ.");
    sy_ctx_destroy(ctx);
    return equal ? 0 : 1;
}
