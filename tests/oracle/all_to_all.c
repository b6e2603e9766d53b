#include "all_to_all.h"

#include "sum.h"

/* ---- Groups and tokens ---- */

int oracle_a2a_devices(const struct a2a_case *c)
{
    return c->mesh.rows * c->mesh.cols;
}

/* Do two devices exchange rows? */
static bool together(const struct a2a_case *c, int a, int b)
{
    const int cols = c->mesh.cols;
    if (c->axis == SY_AXIS_0)
        return a % cols == b % cols;
    return c->axis == SY_AXIS_ALL || a / cols == b / cols;
}

int oracle_a2a_position(const struct a2a_case *c, int d)
{
    int before = 0;
    for (int other = 0; other < d; other++)
        before += together(c, other, d);
    return before;
}

int oracle_a2a_group(const struct a2a_case *c)
{
    int size = 0;
    for (int other = 0; other < oracle_a2a_devices(c); other++)
        size += together(c, other, 0);
    return size;
}

int oracle_a2a_member(const struct a2a_case *c, int d, int q)
{
    for (int other = 0; other < oracle_a2a_devices(c); other++)
        if (together(c, other, d) && q-- == 0)
            return other;
    return -1;
}

int64_t oracle_a2a_total(const struct a2a_case *c, int d)
{
    int64_t total = 0;
    for (int other = 0; other < oracle_a2a_devices(c); other++)
        total += together(c, other, d) ? c->tokens[other] : 0;
    return total;
}

int64_t oracle_a2a_tau(const struct a2a_case *c, int s, int64_t n)
{
    const int p = oracle_a2a_position(c, s);
    if (!c->ragged && c->dim == 2 && c->order == SY_ORDER_CONCAT) {
        const int64_t b = n / c->seq, in_batch = n % c->seq;
        return b * (oracle_a2a_group(c) * c->seq) + p * c->seq + in_batch;
    }
    int64_t before = 0;
    for (int q = 0; q < p; q++)
        before += c->tokens[oracle_a2a_member(c, s, q)];
    return before + n;
}

/* ---- Experts ---- */

static bool hosts(const struct a2a_case *c, int d, int64_t e)
{
    return e >= 0 && c->mapping[e * oracle_a2a_devices(c) + d] == 1;
}

/* Experts of a device below e. */
static int64_t locals_below(const struct a2a_case *c, int d, int64_t e)
{
    int64_t count = 0;
    for (int64_t other = 0; other < e; other++)
        count += hosts(c, d, other);
    return count;
}

int64_t oracle_a2a_locals(const struct a2a_case *c, int d)
{
    return locals_below(c, d, c->experts);
}

int64_t oracle_a2a_expert(const struct a2a_case *c, int d, int64_t l)
{
    for (int64_t e = 0; e < c->experts; e++)
        if (hosts(c, d, e) && locals_below(c, d, e) == l)
            return e;
    return -1;
}

int64_t oracle_a2a_live(const struct a2a_case *c, int s, int64_t n, int64_t e)
{
    for (int64_t k = 0; k < c->slots; k++)
        if (c->chosen[s][n * c->slots + k] == e)
            return k;
    return -1;
}

/* Tokens of s's group before token n of s: all of them, or those that name expert e. */
static int64_t before(const struct a2a_case *c, int s, int64_t n, int64_t e)
{
    const int p = oracle_a2a_position(c, s);
    int64_t count = 0;
    for (int q = 0; q <= p; q++) {
        const int other = oracle_a2a_member(c, s, q);
        const int64_t tokens = q < p ? c->tokens[other] : n;
        for (int64_t m = 0; e >= 0 && m < tokens; m++)
            count += oracle_a2a_live(c, other, m, e) >= 0;
        count += e < 0 ? tokens : 0;
    }
    return count;
}

/* The device that the choice of expert e by token n of s is read from, -1: none. */
static int holder_of(const struct a2a_case *c, int s, int64_t n, int64_t e)
{
    const int p = oracle_a2a_position(c, s);
    int64_t all = 0, near = 0, wanted = 0;
    for (int q = 0; q < oracle_a2a_group(c); q++) {
        const bool has = hosts(c, oracle_a2a_member(c, s, q), e);
        all += has;
        near += has && c->node_size > 0 && q / c->node_size == p / c->node_size;
    }
    if (all == 0)
        return -1;
    const bool local = c->replica == SY_A2A_REPLICA_LOCAL;
    if (local && hosts(c, s, e))
        return s;
    if (all == 1) /* every rule takes it */
        wanted = 0;
    else if (c->replica == SY_A2A_REPLICA_ROUND_ROBIN)
        wanted = before(c, s, n, -1) % all;
    else if (c->replica == SY_A2A_REPLICA_HASH)
        wanted = before(c, s, n, -1) * 2654435769 % 4294967296 % all;
    else if (c->replica == SY_A2A_REPLICA_BALANCED)
        wanted = before(c, s, n, e) % all;
    else if (local)
        wanted = p % (near > 0 ? near : all);
    for (int q = 0;; q++) {
        const bool has = hosts(c, oracle_a2a_member(c, s, q), e),
                   may = !local || near == 0 || q / c->node_size == p / c->node_size;
        if (has && may && wanted-- == 0)
            return oracle_a2a_member(c, s, q);
    }
}

/* Does device d serve the choice of expert e by token n of s? */
static bool serves(const struct a2a_case *c, int d, int s, int64_t n, int64_t e)
{
    return hosts(c, d, e) && oracle_a2a_live(c, s, n, e) >= 0 &&
           (c->replica == SY_A2A_REPLICA_ALL || holder_of(c, s, n, e) == d);
}

bool oracle_a2a_hit(const struct a2a_case *c, int d, int s, int64_t n)
{
    for (int64_t e = 0; e < c->experts; e++)
        if (serves(c, d, s, n, e))
            return true;
    return false;
}

int64_t oracle_a2a_rows(const struct a2a_case *c, int s, int d)
{
    int64_t rows = 0;
    for (int64_t n = 0; together(c, s, d) && n < c->tokens[s]; n++)
        rows += oracle_a2a_hit(c, d, s, n);
    return rows;
}

int64_t oracle_a2a_count(const struct a2a_case *c, int d, int64_t l)
{
    const int64_t e = oracle_a2a_expert(c, d, l);
    int64_t count = 0;
    for (int s = 0; s < oracle_a2a_devices(c); s++)
        for (int64_t n = 0; together(c, s, d) && n < c->tokens[s]; n++)
            count += serves(c, d, s, n, e);
    return count;
}

/* ---- Dispatch ---- */

static int64_t put(struct a2a_from *from, int64_t at, int device, int64_t n, int64_t slot)
{
    if (from)
        from[at] = (struct a2a_from){device, n, slot};
    return at + 1;
}

static int64_t padded_rows(const struct a2a_case *c, int d, struct a2a_from *from)
{
    for (int s = 0; from && s < oracle_a2a_devices(c); s++)
        for (int64_t n = 0; together(c, s, d) && n < c->tokens[s]; n++)
            put(from, oracle_a2a_tau(c, s, n), oracle_a2a_hit(c, d, s, n) ? s : -1, n, -1);
    return oracle_a2a_total(c, d);
}

static int64_t packed_rows(const struct a2a_case *c, int d, struct a2a_from *from)
{
    int64_t at = 0;
    for (int q = 0; q < oracle_a2a_group(c); q++) {
        const int s = oracle_a2a_member(c, d, q);
        for (int64_t n = 0; n < c->tokens[s]; n++)
            if (oracle_a2a_hit(c, d, s, n))
                at = put(from, at, s, n, -1);
    }
    return at;
}

static int64_t expert_rows(const struct a2a_case *c, int d, struct a2a_from *from)
{
    int64_t at = 0;
    for (int64_t l = 0; l < oracle_a2a_locals(c, d); l++) {
        const int64_t e = oracle_a2a_expert(c, d, l);
        while (at < l * c->expert_rows)
            at = put(from, at, -1, -1, -1);
        for (int q = 0; q < oracle_a2a_group(c); q++) {
            const int s = oracle_a2a_member(c, d, q);
            for (int64_t n = 0; n < c->tokens[s]; n++)
                if (serves(c, d, s, n, e))
                    at = put(from, at, s, n, oracle_a2a_live(c, s, n, e));
        }
        while (c->expert_rows == 0 && at % c->align != 0)
            at = put(from, at, -1, -1, -1);
    }
    while (at < oracle_a2a_locals(c, d) * c->expert_rows)
        at = put(from, at, -1, -1, -1);
    return at;
}

int64_t oracle_a2a_dispatch(const struct a2a_case *c, int d, struct a2a_from *from)
{
    return c->layout == SY_LAYOUT_PADDED   ? padded_rows(c, d, from)
           : c->layout == SY_LAYOUT_PACKED ? packed_rows(c, d, from)
                                           : expert_rows(c, d, from);
}

/* ---- Combine ---- */

int64_t oracle_a2a_inputs(const struct a2a_case *c, int d, bool partial)
{
    const int64_t rows = oracle_a2a_dispatch(c, d, NULL);
    return c->layout == SY_LAYOUT_PADDED && !partial ? oracle_a2a_locals(c, d) * rows : rows;
}

/* The row of holder h's input that belongs to expert e and token n of home s. */
static int64_t input_row(const struct a2a_case *c, int h, int s, int64_t n, int64_t e, bool partial)
{
    const int64_t total = oracle_a2a_total(c, h), tau = oracle_a2a_tau(c, s, n);
    if (c->layout == SY_LAYOUT_PADDED)
        return partial ? tau : locals_below(c, h, e) * total + tau;
    const int64_t rows = oracle_a2a_dispatch(c, h, NULL), k = oracle_a2a_live(c, s, n, e);
    struct a2a_from *from = malloc((size_t)(rows + 1) * sizeof *from);
    int64_t at = 0;
    if (from == NULL)
        abort();
    oracle_a2a_dispatch(c, h, from);
    while (from[at].device != s || from[at].row != n || (c->layout == SY_LAYOUT_EXPERT && from[at].slot != k))
        at++;
    free(from);
    return at;
}

/* The lowest expert of a token whose choice device h serves; -1: none. */
static int64_t lowest(const struct a2a_case *c, int h, int d, int64_t n)
{
    for (int64_t e = 0; e < c->experts; e++)
        if (serves(c, h, d, n, e))
            return e;
    return -1;
}

struct a2a_from oracle_a2a_combine(const struct a2a_case *c, int d, int64_t n, int64_t k, bool partial)
{
    const struct a2a_from nowhere = {-1, -1, -1};
    const int64_t e = c->chosen[d][n * c->slots + k];
    if (e < 0 || oracle_a2a_live(c, d, n, e) != k)
        return nowhere;
    const int h = holder_of(c, d, n, e);
    if (h < 0 || (partial && lowest(c, h, d, n) != e))
        return nowhere;
    return (struct a2a_from){h, input_row(c, h, d, n, e, partial), k};
}

/* ---- Sums ---- */

static enum number_type number_of(DLDataType type)
{
    return type.bits == 32 ? NUMBER_F32 : type.code == kDLFloat ? NUMBER_F16 : NUMBER_BF16;
}

/* The j-th summand: the slot j, or with partial sums the position j. */
static struct a2a_from summand(const struct a2a_case *c, int d, int64_t n, int64_t j, bool partial)
{
    if (!partial)
        return oracle_a2a_combine(c, d, n, j, false);
    const int h = oracle_a2a_member(c, d, (int)j);
    const int64_t e = lowest(c, h, d, n);
    if (e < 0)
        return (struct a2a_from){-1, -1, -1};
    return (struct a2a_from){h, input_row(c, h, d, n, e, true), -1};
}

void oracle_a2a_sum(const struct a2a_case *c, const struct a2a_sum *sum, int d, int64_t n, bool partial,
                    unsigned char *to)
{
    const int64_t terms = partial ? oracle_a2a_group(c) : c->slots;
    struct a2a_from *from = malloc((size_t)terms * sizeof *from);
    if (from == NULL)
        abort();
    for (int64_t j = 0; j < terms; j++)
        from[j] = summand(c, d, n, j, partial);
    for (int64_t h = 0; h < sum->hidden; h++) {
        float acc = 0;
        for (int64_t j = 0; j < terms; j++) {
            if (from[j].device < 0)
                continue;
            const double weight =
                sum->weights[d] ? number_get(number_of(sum->weight_type), sum->weights[d], n * c->slots + j)
                                : 1;
            const double row =
                number_get(number_of(sum->type), sum->inputs[from[j].device], from[j].row * sum->hidden + h);
            acc = oracle_plus_product(acc, weight, row);
        }
        number_put(number_of(sum->out_type), to, h, (double)acc);
    }
    free(from);
}
