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
    fprintf(out, " &middot; %s</p>\n</header>\n", demo->machine.date);
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

void demo_page(const struct demo *demo, FILE *out)
{
    put_head(out, demo);
    fputs("<div class=\"cards\">\n<div class=\"column\">\n", out);
    put_steps(out, demo);
    fputs("</div>\n<div class=\"column\">\n", out);
    demo_draw_routing(demo, out);
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
        demo_draw_pages(demo, out);
    if (demo->kept > 0)
        demo_draw_sampling(demo, out);
    fputs(
        "</div>\n</div>\n<footer>Made by <code>switchyard demo</code>. For other shapes and every operator: "
        "<code>switchyard bench</code>.</footer>\n</main>\n</body>\n</html>\n",
        out);
}
