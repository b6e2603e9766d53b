/*
 * The demo's page: one self-contained HTML file with inline style and SVG, readable on a phone and in the
 * dark.
 */
#include "demo.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    ":root{--page:#f7f7f5;--card:#fff;--ink:#1d1d1f;--soft:#6a6a70;--line:#e3e3df;--main:#2563c9;--mid:#"
    "8fb4ea;"
    "--pale:#d9dde3;--mark:#d9480f}\n"
    "@media(prefers-color-scheme:dark){:root{--page:#141416;--card:#1e1e21;--ink:#ececee;--soft:#a0a0a8;--"
    "line:#333338;"
    "--main:#6aa2f7;--mid:#38598f;--pale:#3c3c43;--mark:#ff8a4c}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--page);color:var(--ink);font:16px/1.5 system-ui,sans-serif}\n"
    "main{max-width:60rem;margin:0 auto;padding:1.5rem 1rem 3rem}\n"
    "h1{font-size:1.6rem;line-height:1.25;margin:0 0 .25rem}\n"
    "h2{font-size:1.1rem;margin:0 0 .25rem}\n"
    "p{margin:0 0 .75rem;color:var(--soft)}\n"
    "section{background:var(--card);border:1px solid "
    "var(--line);border-radius:.75rem;padding:1rem;margin-top:1rem}\n"
    "svg{display:block;width:100%;height:auto}\n"
    "text{fill:var(--soft);font:12px system-ui,sans-serif}\n"
    "text.strong{fill:var(--ink)}\n"
    ".grid{stroke:var(--line);stroke-width:1}\n"
    ".main{fill:var(--main)}.mid{fill:var(--mid)}.pale{fill:var(--pale)}.mark{fill:var(--mark)}\n"
    ".step{padding:.6rem 0;border-top:1px solid var(--line)}.step:first-of-type{border-top:0}\n"
    ".step b{font-family:ui-monospace,monospace;font-size:.95rem}\n"
    ".row{display:flex;flex-wrap:wrap;justify-content:space-between;gap:.1rem 1rem}\n"
    ".row span{color:var(--soft);font-variant-numeric:tabular-nums}\n"
    ".track{height:.7rem;border-radius:.35rem;background:var(--pale);margin:.35rem 0;overflow:hidden}\n"
    ".track i{display:block;height:100%;background:var(--main)}\n"
    ".key{display:flex;flex-wrap:wrap;gap:.25rem 1.25rem;margin:.5rem 0 "
    "0;color:var(--soft);font-size:.875rem}\n"
    "@media(max-width:40rem){text{font-size:19px}}\n"
    ".key "
    "i{display:inline-block;width:.75rem;height:.75rem;border-radius:.2rem;margin-right:.4rem;vertical-align:"
    "-.05rem}\n";

static void page_head(FILE *out, const struct demo *demo)
{
    bool good = demo->n_steps == DEMO_STEPS;
    for (int i = 0; i < demo->n_steps; i++)
        good = good && demo->steps[i].good;
    fprintf(out,
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
            "<meta name=\"color-scheme\" content=\"light dark\">\n"
            "<title>Switchyard demo</title>\n<style>\n%s</style>\n</head>\n<body>\n<main>\n",
            style);
    fprintf(out,
            "<h1>One decode step of a mixture-of-experts model</h1>\n"
            "<p>Switchyard %s, kernels %s, %d thread%s. %s</p>\n",
            sy_version(), sy_ctx_isa(demo->ctx), demo->threads, demo->threads == 1 ? "" : "s",
            good ? "Every result on this page was checked." : "A RESULT ON THIS PAGE IS WRONG.");
}

/* ---- Time per operator --------------------------------------------------------------------------------- */

static void times(FILE *out, const struct demo *demo)
{
    fputs("<section>\n<h2>Time per operator</h2>\n"
          "<p>The bar is the operator's rate as a share of what the memory of this machine allows, measured "
          "in the same "
          "run by a plain copy or read.</p>\n",
          out);
    for (int i = 0; i < demo->n_steps; i++) {
        const struct demo_step *const step = &demo->steps[i];
        const double percent = 100 * step->share;
        fprintf(out,
                "<div class=\"step\"><div class=\"row\"><b>%s</b><span>%s &middot; %.1f GB/s &middot; "
                "%.0f%% of a %s"
                "%s</span></div>\n<div class=\"track\"><i style=\"width:%.1f%%\"></i></div>\n"
                "<div class=\"row\"><span>%s</span></div></div>\n",
                step->op, bench_time(step->seconds).text, step->bytes / step->seconds * 1e-9, percent,
                step->limit, step->good ? "" : " &middot; WRONG", fmin(percent, 100), step->what);
    }
    fputs("</section>\n", out);
}

/* ---- Routing ------------------------------------------------------------------------------------------- */

/* Who goes where: the first tokens from left to right, experts from top to bottom, darker for more weight. */
static void routing(FILE *out, const struct demo *demo)
{
    enum { SHOWN = 80, CELL = 10, LEFT = 36, TOP = 24 };
    fprintf(out,
            "<section>\n<h2>Routing</h2>\n<p>The first %d of %d tokens from left to right; each is sent to "
            "%d of %d experts, "
            "top to bottom. The fuller the colour, the more the expert counts for the token.</p>\n",
            SHOWN, DEMO_TOKENS, DEMO_K, DEMO_EXPERTS);
    fprintf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Which token goes to which expert\">\n",
            LEFT + SHOWN * CELL, TOP + DEMO_EXPERTS * CELL);
    for (int e = 0; e <= DEMO_EXPERTS; e += 8)
        fprintf(out, "<line class=\"grid\" x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", LEFT, TOP + e * CELL,
                LEFT + SHOWN * CELL, TOP + e * CELL);
    for (int e = 0; e < DEMO_EXPERTS; e += 8)
        fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%d</text>\n", LEFT - 6, TOP + e * CELL + 10,
                e);
    for (int t = 0; t < SHOWN; t += 16)
        fprintf(out, "<text x=\"%d\" y=\"16\">%d</text>\n", LEFT + t * CELL, t);
    for (int t = 0; t < SHOWN; t++)
        for (int e = 0; e < DEMO_EXPERTS; e++) {
            const float weight = demo->weights[t * DEMO_EXPERTS + e];
            if (demo->map[t * DEMO_EXPERTS + e] == 0)
                continue;
            fprintf(
                out,
                "<rect class=\"main\" x=\"%d\" y=\"%d\" width=\"9\" height=\"9\" rx=\"2\" opacity=\"%.2f\">"
                "<title>token %d, expert %d: %.3f</title></rect>\n",
                LEFT + t * CELL, TOP + e * CELL, fmin(1, 0.2 + 2.2 * (double)weight), t, e, (double)weight);
        }
    fputs("</svg>\n</section>\n", out);
}

static void load(FILE *out, const struct demo *demo)
{
    enum { WIDTH = 720, HEIGHT = 200, LEFT = 44, BASE = 170 };
    int64_t most = 1;
    for (int e = 0; e < DEMO_EXPERTS; e++)
        most = demo->load[e] > most ? demo->load[e] : most;
    const double mean = (double)DEMO_TOKENS * DEMO_K / DEMO_EXPERTS;
    const double step = (double)(WIDTH - LEFT) / DEMO_EXPERTS, scale = (BASE - 20) / (double)most;
    fprintf(out,
            "<section>\n<h2>Load of each expert</h2>\n<p>Rows per expert, from expert 0 on, in the order "
            "moe_permute lays "
            "them out. A fair share would be %.0f.</p>\n"
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Rows per expert\">\n",
            mean, WIDTH, HEIGHT);
    for (int e = 0; e < DEMO_EXPERTS; e++) {
        const double height = (double)demo->load[e] * scale;
        fprintf(out,
                "<rect class=\"main\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"1.5\">"
                "<title>expert %d: %d rows</title></rect>\n",
                LEFT + e * step, BASE - height, step - 2, height, e, (int)demo->load[e]);
    }
    const double y = BASE - mean * scale;
    fprintf(out,
            "<line x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\" stroke=\"var(--mark)\" stroke-width=\"1.5\" "
            "stroke-dasharray=\"5 4\"/>\n<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.0f</text>\n"
            "<text x=\"%d\" y=\"24\" text-anchor=\"end\">%d</text>\n<text x=\"%d\" y=\"%d\" "
            "text-anchor=\"end\">0</text>\n",
            LEFT, y, WIDTH, y, LEFT - 6, y + 4, mean, LEFT - 6, (int)most, LEFT - 6, BASE + 4);
    for (int e = 0; e < DEMO_EXPERTS; e += 8)
        fprintf(out, "<text x=\"%.1f\" y=\"%d\">%d</text>\n", LEFT + e * step, BASE + 20, e);
    fputs("</svg>\n</section>\n", out);
}

/* ---- Sampling ------------------------------------------------------------------------------------------ */

static const char *bar_class(const struct demo *demo, int rank)
{
    if (demo->likely_token[rank] == demo->picked)
        return "mark";
    if (rank < demo->kept)
        return "main";
    return rank < DEMO_TOP_K ? "mid" : "pale";
}

static void sampling(FILE *out, const struct demo *demo)
{
    enum { WIDTH = 720, HEIGHT = 220, LEFT = 58, BASE = 185 };
    const double step = (double)(WIDTH - LEFT) / DEMO_SHOWN, scale = (BASE - 20) / demo->likely[0];
    fprintf(
        out,
        "<section>\n<h2>What the sampler chose from</h2>\n<p>The %d most likely of %d tokens in the first "
        "row. Top-k "
        "keeps %d, top-p 0.9 keeps %d of those, one is drawn: token %d.</p>\n"
        "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"Probabilities before and after the cuts\">\n",
        DEMO_SHOWN, DEMO_VOCAB, DEMO_TOP_K, (int)demo->kept, (int)demo->picked, WIDTH, HEIGHT);
    for (int tick = 0; tick <= 2; tick++) {
        const double value = demo->likely[0] * tick / 2;
        fprintf(out,
                "<line class=\"grid\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/>"
                "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.2g%%</text>\n",
                LEFT, BASE - value * scale, WIDTH, BASE - value * scale, LEFT - 6, BASE - value * scale + 4,
                100 * value);
    }
    for (int i = 0; i < DEMO_SHOWN; i++)
        fprintf(out,
                "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" rx=\"1.5\">"
                "<title>rank %d, token %d: %.3f%%</title></rect>\n",
                bar_class(demo, i), LEFT + i * step, BASE - demo->likely[i] * scale, step - 2,
                demo->likely[i] * scale, i + 1, (int)demo->likely_token[i], 100 * demo->likely[i]);
    fprintf(out,
            "<text x=\"%d\" y=\"%d\">most likely</text>\n<text x=\"%d\" y=\"%d\" text-anchor=\"end\">rank "
            "%d</text>\n",
            LEFT, BASE + 20, WIDTH, BASE + 20, DEMO_SHOWN);
    fputs("</svg>\n<div class=\"key\"><span><i style=\"background:var(--mark)\"></i>drawn</span>"
          "<span><i style=\"background:var(--main)\"></i>survives both cuts</span>"
          "<span><i style=\"background:var(--mid)\"></i>cut by top-p</span>"
          "<span><i style=\"background:var(--pale)\"></i>cut by top-k</span></div>\n</section>\n",
          out);
}

bool demo_page(const struct demo *demo, const char *path)
{
    FILE *const out = fopen(path, "w");
    if (!out)
        return false;
    page_head(out, demo);
    times(out, demo);
    routing(out, demo);
    load(out, demo);
    if (demo->kept > 0)
        sampling(out, demo);
    fputs("</main>\n</body>\n</html>\n", out);
    const bool good = !ferror(out);
    return fclose(out) == 0 && good;
}
