/*
 * The demo's page: one self-contained HTML file with its style and pictures inside, readable on a phone and in the
 * dark.
 */
#include "demo.h"

#include <math.h>
#include <string.h>

/* Text from outside the program, safe between tags. */
static void put_text(FILE *out, const char *text)
{
    for (; *text != 0; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        default:
            fputc(*text, out);
        }
}

void demo_put_head(FILE *out, const char *title, const char *heading)
{
    fprintf(out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<title>%s</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n<header>\n<h1>%s</h1>\n",
            title, demo_style, heading);
}

static void put_head(FILE *out, const struct demo *demo)
{
    demo_put_head(out, "Switchyard: one decode step", "One decode step of a mixture-of-experts model");
    fprintf(
        out,
        "<p class=\"lead\">%d sequences, one token each. Their hidden states are sent to %d of %d "
        "experts and back, leave a row in the KV cache, read old rows from it, and become one token each. "
        "The shapes are OLMoE's, the weights random, the results real.</p>\n",
        DEMO_TOKENS, DEMO_K, DEMO_EXPERTS);
    fprintf(out, "<p class=\"verdict%s</p>\n",
            demo_all_good(demo) ? "\">&#10003; every result on this page was checked"
                                : " bad\">&#10007; A RESULT ON THIS PAGE IS WRONG");
    fprintf(out, "<p class=\"facts\">Switchyard %s &middot; kernels %s &middot; %d thread%s", sy_version(),
            sy_ctx_isa(demo->ctx), demo->threads, demo->threads == 1 ? "" : "s");
    if (demo->machine.cpu[0] != 0) {
        fputs(" &middot; ", out);
        put_text(out, demo->machine.cpu);
    }
    if (demo->device.tools) {
        fprintf(out, " &middot; cuda:%d ", demo->device.device.device_id);
        put_text(out, demo->device.info.name);
    }
    fprintf(out, " &middot; %s</p>\n", demo->machine.date);
    if (demo_busy(demo))
        fprintf(out,
                "<p class=\"no\">Other programs used %.0f%% of the CPUs meanwhile: on a free machine times "
                "are shorter.</p>\n",
                100 * demo->others);
    fputs("</header>\n", out);
}

static void put_time(FILE *out, double seconds)
{
    const struct bench_text time = bench_time(seconds);
    const char *const unit = strchr(time.text, ' ');
    fprintf(out, "%.*s&nbsp;%s", (int)(unit - time.text), time.text,
            strcmp(unit, " us") == 0 ? "&micro;s" : unit + 1);
}

/* The step's share of its limit: a bar, or the reason why there is none. */
static void put_share(FILE *out, const struct demo_step *step)
{
    const double percent = 100 * step->share;
    if (!step->limit) {
        fprintf(
            out,
            "<p class=\"small\">%.3g GFLOP/s in plain C; no operator, so no limit to hold it against</p>\n",
            step->bytes / step->seconds * 1e-9);
        return;
    }
    if (!demo_share_holds(step)) {
        fprintf(out, "<p class=\"small\">a plain %s of its %s took %s%s: is the machine busy?</p>\n",
                step->limit, demo_size(step->bytes).text, demo_limit_time(step).text,
                step->there ? " on the device" : "");
        return;
    }
    fprintf(out,
            "<div class=\"track\" role=\"img\" aria-label=\"%.0f percent of the speed of a plain %s\">"
            "<i style=\"width:%.1f%%\"></i></div>\n",
            percent, step->limit, fmin(percent, 100));
    fprintf(out, "<p class=\"small\">%.0f%% of a plain %s of its %s%s</p>\n", percent, step->limit,
            demo_size(step->bytes).text, step->there ? ", on the device" : "");
}

static void put_steps(FILE *out, const struct demo *demo)
{
    fputs("<section>\n<h2>The step, operator by operator</h2>\n"
          "<p>A full bar is the speed at which this machine copies, fills or reads the same bytes, measured "
          "in the "
          "same run with caches cold. Small steps are bounded by latency and arithmetic rather than by "
          "bytes.</p>\n"
          "<ol class=\"steps\">\n",
          out);
    for (int i = 0; i < demo->n_steps; i++) {
        const struct demo_step *const step = &demo->steps[i];
        fprintf(out, "<li><div class=\"row\"><b>%s</b><span>", step->op);
        put_time(out, step->seconds);
        fprintf(out, "</span></div>\n<p>%s</p>\n", step->what);
        if (step->detail[0] != 0)
            fprintf(out, "<p class=\"small\">%s</p>\n", step->detail);
        put_share(out, step);
        fprintf(out, "<p class=\"small\"><span class=\"%s %s</p></li>\n",
                step->good ? "ok\">&#10003;</span>" : "no\">&#10007; it is not so that</span>", step->check);
    }
    fputs("</ol>\n</section>\n", out);
}

/* ---- Pictures, as SVG in units of which 460 are the width of a card ---- */

enum { WIDE = 460, LEFT = 54 };
static const double pitch = (double)(WIDE - LEFT) / DEMO_EXPERTS; /* of an expert, and of a likely token */

static void begin_picture(FILE *out, const char *id, int height, const char *title, const char *description)
{
    fprintf(out,
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-labelledby=\"%s-title %s-what\">\n"
            "<title id=\"%s-title\">%s</title><desc id=\"%s-what\">%s</desc>\n",
            WIDE, height, id, id, id, title, id, description);
}

static void line(FILE *out, const char *kind, double x1, double y1, double x2, double y2)
{
    fprintf(out, "<line class=\"%s\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>\n", kind, x1, y1, x2,
            y2);
}

/* A bar in column `at` from `base` upwards, with a tooltip. */
static void bar(FILE *out, const char *kind, int at, double base, double height, const char *text)
{
    fprintf(
        out,
        "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%s</title></rect>\n",
        kind, LEFT + at * pitch, base - height, pitch - 1.2, height, text);
}

/* ---- Routing ---- */

enum { TOP = 20, BAND = 26, LOAD = 96 }; /* label line, expert numbers, height of the load */

static void draw_choices(const struct demo *demo, FILE *out)
{
    float most = 0;
    for (int i = 0; i < DEMO_TOKENS * DEMO_EXPERTS; i++)
        most = demo->probs[i] > most ? demo->probs[i] : most;
    for (int t = 0; t < DEMO_TOKENS; t++)
        for (int e = 0; e < DEMO_EXPERTS; e++) {
            const double weight = (double)demo->probs[t * DEMO_EXPERTS + e];
            if (demo->map[t * DEMO_EXPERTS + e] != 0)
                fprintf(out,
                        "<rect class=\"main\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"1\" "
                        "opacity=\"%.2f\"><title>token %d, expert %d: %.3f</title></rect>\n",
                        LEFT + e * pitch, TOP + t * pitch, pitch - 0.9, pitch - 0.9,
                        0.36 + 0.64 * sqrt(weight / (double)most), t, e, weight);
        }
}

static void draw_load(const struct demo *demo, FILE *out, double base)
{
    int64_t most = 1;
    for (int e = 0; e < DEMO_EXPERTS; e++)
        most = demo->load[e] > most ? demo->load[e] : most;
    const double fair = (double)DEMO_ROWS / DEMO_EXPERTS, scale = (double)LOAD / (double)most;
    for (int e = 0; e < DEMO_EXPERTS; e++) {
        char text[64];
        snprintf(text, sizeof text, "expert %d: %d tokens", e, (int)demo->load[e]);
        bar(out, "main", e, base, (double)demo->load[e] * scale, text);
    }
    line(out, "grid", LEFT, base, WIDE, base);
    line(out, "fair", LEFT, base - fair * scale, WIDE, base - fair * scale);
    fprintf(out,
            "<text class=\"end\" x=\"%d\" y=\"%.1f\">%d</text>\n<text class=\"end\" x=\"%d\" "
            "y=\"%.1f\">%.0f</text>\n",
            LEFT - 6, base - LOAD + 10, (int)most, LEFT - 6, base - fair * scale + 4, fair);
}

static void draw_routing(const struct demo *demo, FILE *out)
{
    const double bottom = TOP + DEMO_TOKENS * pitch, base = bottom + BAND + LOAD;
    fprintf(
        out,
        "<section>\n<h2>Routing</h2>\n<p>A line for each of the %d tokens, a column for each of the "
        "%d "
        "experts: the fuller the colour, the more the expert counts for the token. Below, the load of each "
        "expert: the rows moe_permute hands to it. The dashed line is a fair share.</p>\n",
        DEMO_TOKENS, DEMO_EXPERTS);
    begin_picture(
        out, "routing", (int)base + 6, "Routing map and load of each expert",
        "A grid of tokens and experts with eight marks in each line, and under it a bar for each expert.");
    for (int i = 0; i <= DEMO_EXPERTS; i += 8) {
        line(out, "grid", LEFT + i * pitch - 0.5, TOP, LEFT + i * pitch - 0.5, bottom);
        line(out, "grid", LEFT, TOP + i * pitch - 0.5, WIDE, TOP + i * pitch - 0.5);
    }
    for (int i = 0; i < DEMO_EXPERTS; i += 8) {
        fprintf(out, "<text class=\"end\" x=\"%d\" y=\"%.1f\">%d</text>\n", LEFT - 6, TOP + i * pitch + 10,
                i);
        fprintf(out, "<text x=\"%.1f\" y=\"%.1f\">%d</text>\n", LEFT + i * pitch, bottom + 14, i);
    }
    fprintf(
        out,
        "<text class=\"end\" x=\"%d\" y=\"11\">token</text>\n<text class=\"end\" x=\"%d\" y=\"%.1f\">expert"
        "</text>\n",
        LEFT - 6, LEFT - 6, bottom + 14);
    draw_choices(demo, out);
    draw_load(demo, out, base);
    fputs("</svg>\n</section>\n", out);
}

/* ---- Traffic ---- */

/* From the device of the line to that of the column; tokens that stay on their device have another colour. */
void demo_draw_traffic(const int64_t *traffic, int devices, double row_bytes, FILE *out)
{
    enum { SIDE = LEFT + 30, HEAD = 40, MOST_HEIGHT = 44 };
    const double wide = (double)(WIDE - SIDE) / devices, tall = fmin(MOST_HEIGHT, wide);
    int64_t most = 1;
    for (int i = 0; i < devices * devices; i++)
        most = traffic[i] > most ? traffic[i] : most;
    begin_picture(out, "traffic", (int)(HEAD + tall * devices) + 4, "Tokens from device to device",
                  "A table: a line for each device that sends, a column for each that receives.");
    fprintf(out, "<text x=\"%d\" y=\"14\">to device</text>\n<text x=\"0\" y=\"%d\">from</text>\n", SIDE,
            HEAD - 8);
    for (int p = 0; p < devices; p++) {
        const double y = HEAD + p * tall;
        fprintf(out,
                "<text class=\"centre\" x=\"%.1f\" y=\"%d\">%d</text>\n<text x=\"0\" y=\"%.1f\">device "
                "%d</text>\n",
                SIDE + (p + 0.5) * wide, HEAD - 8, p, y + tall / 2 + 4, p);
        for (int q = 0; q < devices; q++) {
            const int64_t n = traffic[p * devices + q];
            const double x = SIDE + q * wide;
            fprintf(out,
                    "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"3\" "
                    "style=\"opacity:%.2f\"><title>device %d to device %d: %d tokens, %s</title></rect>\n",
                    p == q ? "pale" : "main", x, y, wide - 2, tall - 2,
                    0.15 + 0.45 * (double)n / (double)most, p, q, (int)n,
                    demo_size((double)n * row_bytes).text);
            fprintf(out, "<text class=\"ink centre\" x=\"%.1f\" y=\"%.1f\">%d</text>\n", x + wide / 2 - 1,
                    y + tall / 2 + 4, (int)n);
        }
    }
    fputs("</svg>\n<ul class=\"key\"><li><i class=\"main\"></i>to another device</li>"
          "<li><i class=\"pale\"></i>on the same device</li></ul>\n",
          out);
}

/* ---- Pages ---- */

/* The sequence with the most pages has the most to show. */
static int longest(const struct demo *demo)
{
    int best = 0;
    for (int b = 1; b < DEMO_TOKENS; b++)
        best = demo->length[b] > demo->length[best] ? b : best;
    return best;
}

/* Rows of a sequence that were read from one of its pages. */
static int reads_of(const struct demo *demo, int sequence, int page)
{
    int n = 0;
    for (int j = 0; j < demo->counts[sequence]; j++)
        n += demo->selected[sequence * DEMO_SELECTED + j] / DEMO_BLOCK == page;
    return n;
}

/* From a page of the sequence to its place in the pool. */
static void draw_page(FILE *out, double x, double width, int page, double to, int place, int reads)
{
    enum { UPPER = 20, THICK = 12, LOWER = 150 };
    fprintf(out,
            "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"><title>page %d of the "
            "sequence is "
            "page %d of the pool; %d rows read</title></rect>\n",
            reads > 0 ? "main" : "pale", x, UPPER, fmax(width - 1, 1), THICK, page, place, reads);
    x += width / 2;
    fprintf(out, "<path class=\"%s\" d=\"M%.1f %d C%.1f %d %.1f %d %.1f %d\"/>\n",
            reads > 0 ? "read" : "idle", x, UPPER + THICK, x, (UPPER + LOWER) / 2, to, (UPPER + LOWER) / 2,
            to, LOWER);
    fprintf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%d\" width=\"2\" height=\"%d\"/>\n",
            reads > 0 ? "main" : "mid", to - 1, LOWER, THICK);
}

static void draw_pages(const struct demo *demo, FILE *out)
{
    const int b = longest(demo), n = demo->length[b] / DEMO_BLOCK + 1;
    const int32_t *const table = demo->table + (size_t)b * DEMO_PAGES;
    const double width = (double)WIDE / n, pool = (double)WIDE / (double)demo->pages;
    fprintf(
        out,
        "<section>\n<h2>The pages of a sequence</h2>\n<p>Sequence %d has written %d tokens into %d "
        "pages of "
        "%d rows. They are scattered over the pool of %d pages that all sequences share; the block table has "
        "their places. The attention of this step reads %d of its rows.</p>\n",
        b, demo->length[b] + 1, n, DEMO_BLOCK, (int)demo->pages, demo->counts[b]);
    begin_picture(out, "pages", 184, "Pages of a sequence and their places in the pool",
                  "Lines lead from the pages of the sequence in order to scattered places in the pool.");
    fprintf(
        out,
        "<text x=\"0\" y=\"12\">its pages, oldest first</text>\n<text x=\"0\" y=\"179\">the pool</text>\n");
    fprintf(out, "<rect class=\"pale\" x=\"0\" y=\"150\" width=\"%d\" height=\"12\" rx=\"2\"/>\n", WIDE);
    for (int read = 0; read <= 1; read++) /* pages that are read are drawn on top */
        for (int i = 0; i < n; i++) {
            const int reads = reads_of(demo, b, i);
            if ((reads > 0) == (read != 0))
                draw_page(out, i * width, width, i, (table[i] + 0.5) * pool, table[i], reads);
        }
    fputs("</svg>\n<ul class=\"key\"><li><i class=\"main\"></i>read in this step</li>"
          "<li><i class=\"pale\"></i>not read</li></ul>\n</section>\n",
          out);
}

/* ---- Sampling ---- */

static const char *fate(const struct demo *demo, int rank)
{
    if (demo->likely_token[rank] == demo->picked)
        return "mark";
    if (rank < demo->kept)
        return "main";
    return rank < DEMO_TOP_K ? "mid" : "pale";
}

/* The first n of the most likely tokens, their probabilities divided by `whole`. */
static void draw_probabilities(const struct demo *demo, FILE *out, int n, double whole, double base,
                               double height)
{
    const double most = demo->likely[0] / whole;
    for (int tick = 0; tick <= 2; tick++) {
        const double y = base - height * tick / 2;
        line(out, "grid", LEFT, y, WIDE, y);
        fprintf(out, "<text class=\"end\" x=\"%d\" y=\"%.1f\">%.3g%%</text>\n", LEFT - 5, y + 4,
                100 * most * tick / 2);
    }
    for (int i = 0; i < n; i++) {
        char text[96];
        snprintf(text, sizeof text, "rank %d, token %d: %.3f%%", i + 1, (int)demo->likely_token[i],
                 100 * demo->likely[i] / whole);
        bar(out, fate(demo, i), i, base, height * demo->likely[i] / demo->likely[0], text);
    }
}

static void draw_sampling(const struct demo *demo, FILE *out)
{
    enum { HEIGHT = 104, FIRST = 132, SECOND = 288 };
    double whole = 0;
    for (int64_t i = 0; i < demo->kept; i++)
        whole += demo->likely[i];
    fprintf(out,
            "<section>\n<h2>What the sampler chose from</h2>\n<p>The %d most likely of %d tokens for "
            "sequence 0, best "
            "first. Top-k keeps %d, top-p %.1f keeps %d of those, and one is drawn: token %d.</p>\n",
            DEMO_SHOWN, DEMO_VOCAB, DEMO_TOP_K, (double)DEMO_TOP_P, (int)demo->kept, (int)demo->picked);
    begin_picture(
        out, "sampling", SECOND + 8, "Probabilities before and after the cuts",
        "Two rows of bars: all likely tokens, and those that are left, scaled to one hundred percent.");
    fprintf(out, "<text class=\"ink\" x=\"%d\" y=\"14\">before the cuts, at temperature %.1f</text>\n", LEFT,
            (double)DEMO_TEMPERATURE);
    draw_probabilities(demo, out, DEMO_SHOWN, 1, FIRST, HEIGHT);
    fprintf(out, "<text class=\"ink\" x=\"%d\" y=\"%d\">after: what is left, scaled to 100%%</text>\n", LEFT,
            FIRST + 38);
    draw_probabilities(demo, out, (int)demo->kept, whole, SECOND, HEIGHT);
    fputs("</svg>\n<ul class=\"key\"><li><i class=\"mark\"></i>drawn</li><li><i class=\"main\"></i>survives "
          "both cuts</li>"
          "<li><i class=\"mid\"></i>cut by top-p</li><li><i class=\"pale\"></i>cut by "
          "top-k</li></ul>\n</section>\n",
          out);
}

/* ---- The page ---- */

void demo_page(const struct demo *demo, FILE *out)
{
    put_head(out, demo);
    fputs("<div class=\"cards\">\n<div class=\"column\">\n", out);
    put_steps(out, demo);
    fputs("</div>\n<div class=\"column\">\n", out);
    draw_routing(demo, out);
    if (demo->traffic) {
        fprintf(
            out,
            "<section>\n<h2>Across four devices</h2>\n<p>With %d experts on each device of a 2 x 2 mesh: "
            "how many of its %d tokens each device sends to each. A token that has several experts on one "
            "device goes there once.</p>\n",
            DEMO_EXPERTS / DEMO_DEVICES, DEMO_TOKENS / DEMO_DEVICES);
        demo_draw_traffic(demo->traffic, DEMO_DEVICES, 2.0 * DEMO_HIDDEN, out);
        fputs("</section>\n", out);
    }
    if (demo->selected)
        draw_pages(demo, out);
    if (demo->kept > 0)
        draw_sampling(demo, out);
    fputs(
        "</div>\n</div>\n<footer>Made by <code>switchyard demo</code>. For other shapes and every operator: "
        "<code>switchyard bench</code>.</footer>\n</main>\n</body>\n</html>\n",
        out);
}
