/*
 * A model as Hugging Face saves it. config.json has its sizes. The weights are in model.safetensors, or in the files that
 * model.safetensors.index.json names: 8 bytes (length of the header), the header (JSON: type, shape and place of every tensor),
 * then the numbers. Files are mapped, so a process of a mesh reads the experts that it hosts and no others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lm.h"

struct architecture {
    const char *name, *experts, *width, *mlp, *gate, *up, *down; /* in config.json, and of tensors */
    enum norm norm;
    bool renormalise;  /* always */
    bool may_be_dense; /* layers without experts */
};

static const struct architecture known[] = {
    {"OlmoeForCausalLM", "num_experts", "intermediate_size", "mlp", "gate_proj", "up_proj", "down_proj",
     NORM_HEADS, false, false},
    {"Qwen3MoeForCausalLM", "num_experts", "moe_intermediate_size", "mlp", "gate_proj", "up_proj",
     "down_proj", NORM_EACH_HEAD, false, true},
    {"MixtralForCausalLM", "num_local_experts", "intermediate_size", "block_sparse_moe", "w1", "w3", "w2",
     NORM_NONE, true, false},
};

/* ---- Tensors ------------------------------------------------------------------------------------------- */

enum { MOST_SHARDS = 1000 };

struct checkpoint {
    const char *folder;
    const json_t *config;
    const struct architecture *like;
    const json_t *index; /* {"tensor": "file"}; NULL: all are in model.safetensors */
    struct shard {
        struct file file;
        json_t *header;      /* {"tensor": {"dtype", "shape", "data_offsets"}} */
        const char *numbers; /* after it */
    } shard[MOST_SHARDS];
    int n;
};

/* The file that has a tensor, which is opened when it is needed; NULL: none has it. */
static const struct shard *shard_of(struct checkpoint *c, const char *tensor)
{
    const char *const name = c->index != NULL ? json_text(c->index, tensor, NULL) : "model.safetensors";
    struct shard *s = c->shard;
    json_error_t error = {.text = "another value"};
    uint64_t length = 0;
    while (name != NULL && s < c->shard + c->n && strcmp(s->file.name, name) != 0)
        s++;
    if (name == NULL || s < c->shard + c->n)
        return name != NULL && json_object_get(s->header, tensor) != NULL ? s : NULL;
    if (c->n++ == MOST_SHARDS)
        die("the checkpoint has more than %d files", MOST_SHARDS);
    s->file = map_file(c->folder, name);
    if (s->file.data == NULL)
        die("%s/%s is missing", c->folder, name);
    for (int i = 7; i >= 0 && s->file.bytes >= 8; i--)
        length = length << 8 | (unsigned char)s->file.data[i];
    if (s->file.bytes < 8 || length > s->file.bytes - 8)
        die("%s is truncated: its header ends beyond its end", name);
    s->numbers = s->file.data + 8 + length;
    s->header = json_loadb(s->file.data + 8, length, JSON_REJECT_DUPLICATES, &error);
    if (!json_is_object(s->header))
        die("%s: its header is not an object: %s", name, error.text);
    return shard_of(c, tensor);
}

/* The tensor of this name, which must have this shape; rows 0: a vector. */
static struct weight read_tensor(struct checkpoint *c, int64_t rows, int64_t cols, const char *at,
                                 const char *what)
{
    char tensor[256];
    snprintf(tensor, sizeof tensor, "%s%s.weight", at, what);
    const struct shard *const s = shard_of(c, tensor);
    if (s == NULL)
        die("the checkpoint has no tensor %s", tensor);
    const char *const file = s->file.name;
    const json_t *const entry = json_object_get(s->header, tensor);
    const json_t *const shape = json_object_get(entry, "shape");
    json_t *const want = rows > 0 ? json_pack("[I,I]", (json_int_t)rows, (json_int_t)cols)
                                  : json_pack("[I]", (json_int_t)cols);
    if (!json_equal(shape, want))
        die("%s: %s is %s, want %s as config.json says", file, tensor,
            shape != NULL ? json_dumps(shape, JSON_COMPACT | JSON_ENCODE_ANY) : "without a shape",
            json_dumps(want, JSON_COMPACT));
    json_decref(want);
    struct weight w = {.rows = rows > 0 ? rows : 1, .cols = cols};
    const char *const type = json_text(entry, "dtype", "missing");
    const bool f32 = strcmp(type, "F32") == 0, f16 = strcmp(type, "F16") == 0,
               bf16 = strcmp(type, "BF16") == 0;
    if (!f32 && !f16 && !bf16)
        die("%s: %s is of type %s, want F32, F16 or BF16", file, tensor, type);
    w.type = f32 ? F32 : f16 ? F16 : BF16;
    const json_t *const offsets = json_object_get(entry, "data_offsets");
    const int64_t begin = json_whole(json_array_get(offsets, 0), 1e15, "an offset", file);
    const int64_t end = json_whole(json_array_get(offsets, 1), 1e15, "an offset", file);
    const int64_t most = INT64_C(1) << 48; /* rows may be heads times their size */
    if (rows > most / cols)
        die("%s: %s has more than %lld numbers", file, tensor, (long long)most);
    if (end - begin != w.rows * cols * (f32 ? 4 : 2))
        die("%s: the bytes of %s are not those of its shape", file, tensor);
    if (end > s->file.data + s->file.bytes - s->numbers)
        die("%s is truncated: %s ends beyond its end", file, tensor);
    w.data = s->numbers + begin;
    return w;
}

/* ---- config.json --------------------------------------------------------------------------------------- */

static const struct architecture *architecture_of(const json_t *config)
{
    const json_t *const first = json_array_get(json_object_get(config, "architectures"), 0);
    const char *const name = json_is_string(first) ? json_string_value(first) : "missing";
    for (int i = 0; i < 3; i++)
        if (strcmp(name, known[i].name) == 0)
            return &known[i];
    die("config.json: the architecture is %s, want %s, %s or %s", name, known[0].name, known[1].name,
        known[2].name);
}

static int64_t count(const json_t *config, const char *key, int64_t otherwise)
{
    const double value = json_real_at(config, key, (double)otherwise);
    if (!(value >= 1 && value <= 1 << 24) || value != (double)(int64_t)value)
        die("config.json: %s is %s, want a whole number from 1 to %d", key,
            json_get(config, key) != NULL ? "out of range" : "missing", 1 << 24);
    return (int64_t)value;
}

/* What this program does not compute is an error, not another text. */
static void check_config(const json_t *config, const json_t *rope)
{
    if (rope != NULL && !json_is_object(rope))
        die("config.json: the parameters of rotary positions are not an object");
    const char *const type = json_text(rope, "rope_type", json_text(rope, "type", "default"));
    const char *const activation = json_text(config, "hidden_act", "silu");
    if (strcmp(type, "default") != 0)
        die("config.json: rotary positions of type %s, want default", type);
    if (strcmp(activation, "silu") != 0)
        die("config.json: hidden_act is %s, want silu", activation);
    if (json_flag(config, "attention_bias", false))
        die("config.json: attention_bias is true, want false");
    if (json_real_at(config, "sliding_window", 0) != 0 && json_flag(config, "use_sliding_window", true))
        die("config.json: sliding_window is set, want null");
}

static void read_config(struct model *m, const struct checkpoint *c)
{
    const json_t *const config = c->config;
    const json_t *const rope = json_get(config, "rope_parameters");
    const json_t *const eos = json_get(config, "eos_token_id");
    check_config(config, rope != NULL ? rope : json_get(config, "rope_scaling"));
    m->vocabulary = count(config, "vocab_size", 0);
    m->hidden = count(config, "hidden_size", 0);
    m->layers = count(config, "num_hidden_layers", 0);
    m->heads = count(config, "num_attention_heads", 0);
    m->kv_heads = count(config, "num_key_value_heads", m->heads);
    m->head_size = count(config, "head_dim", m->hidden / m->heads);
    m->experts = count(config, c->like->experts, 0);
    m->top_k = count(config, "num_experts_per_tok", 0);
    m->positions = count(config, "max_position_embeddings", 1 << 24);
    if (m->heads % m->kv_heads != 0 || m->head_size % 2 != 0 || m->top_k > m->experts)
        die("config.json: %lld heads of %lld for %lld, top %lld of %lld experts do not fit together",
            (long long)m->heads, (long long)m->head_size, (long long)m->kv_heads, (long long)m->top_k,
            (long long)m->experts);
    m->eps = (float)json_real_at(config, "rms_norm_eps", 1e-5);
    m->theta = json_real_at(rope, "rope_theta", json_real_at(config, "rope_theta", 10000));
    m->clip = (float)json_real_at(config, "clip_qkv", 0);
    if (!(m->eps >= 0) || !(m->theta > 0) || !(m->clip >= 0))
        die("config.json: rms_norm_eps is %g, rope_theta is %g, clip_qkv is %g, want numbers above 0",
            (double)m->eps, m->theta, (double)m->clip);
    m->head_norm = c->like->norm;
    m->renormalise = c->like->renormalise || json_flag(config, "norm_topk_prob", false);
    const size_t n_eos = json_is_array(eos) ? json_array_size(eos) : eos != NULL;
    if (n_eos > MOST_EOS)
        die("config.json: more than %d tokens end a text", MOST_EOS);
    for (size_t i = 0; i < n_eos; i++)
        m->eos[m->n_eos++] = json_whole(json_is_array(eos) ? json_array_get(eos, i) : eos, 1 << 24,
                                        "eos_token_id", "config.json");
}

static void read_layer(struct model *m, int64_t i, struct checkpoint *c)
{
    struct layer *const l = &m->layer[i];
    const struct architecture *const like = c->like;
    const int64_t hidden = m->hidden, q = m->heads * m->head_size, kv = m->kv_heads * m->head_size;
    char at[64], router[128], mlp[96], expert[128];
    snprintf(at, sizeof at, "model.layers.%lld.", (long long)i);
    l->attention_norm = vector(read_tensor(c, 0, hidden, at, "input_layernorm"));
    l->q = pack(read_tensor(c, q, hidden, at, "self_attn.q_proj"));
    l->k = pack(read_tensor(c, kv, hidden, at, "self_attn.k_proj"));
    l->v = pack(read_tensor(c, kv, hidden, at, "self_attn.v_proj"));
    l->o = pack(read_tensor(c, hidden, q, at, "self_attn.o_proj"));
    if (like->norm != NORM_NONE) {
        const bool each = like->norm == NORM_EACH_HEAD;
        l->q_norm = vector(read_tensor(c, 0, each ? m->head_size : q, at, "self_attn.q_norm"));
        l->k_norm = vector(read_tensor(c, 0, each ? m->head_size : kv, at, "self_attn.k_norm"));
    }
    l->mlp_norm = vector(read_tensor(c, 0, hidden, at, "post_attention_layernorm"));

    snprintf(mlp, sizeof mlp, "%s%s.", at, like->mlp);
    snprintf(router, sizeof router, "%sgate.weight", mlp);
    const bool dense = like->may_be_dense && shard_of(c, router) == NULL;
    const int64_t experts = dense ? 1 : m->experts;
    if (!dense)
        l->router = pack(read_tensor(c, m->experts, hidden, mlp, "gate"));
    l->width = count(c->config, dense ? "intermediate_size" : like->width, 0);
    l->gate = NEW(struct matrix, experts);
    l->up = NEW(struct matrix, experts);
    l->down = NEW(struct matrix, experts);
    for (int64_t e = 0; e < experts; e++) {
        snprintf(expert, sizeof expert, dense ? "%s" : "%sexperts.%lld.", mlp, (long long)e);
        if (!dense && !mesh_hosts(m->mesh, e, experts))
            continue;
        l->gate[e] = pack(read_tensor(c, l->width, hidden, expert, like->gate));
        l->up[e] = pack(read_tensor(c, l->width, hidden, expert, like->up));
        l->down[e] = pack(read_tensor(c, hidden, l->width, expert, like->down));
    }
}

static void count_time(void *user, const sy_trace *trace)
{
    *(uint64_t *)user += trace->nanoseconds;
}

struct model *model_open(const char *folder, struct mesh *mesh, int threads)
{
    struct model *const m = NEW(struct model, 1);
    struct checkpoint *const c = NEW(struct checkpoint, 1);
    c->folder = folder;
    c->config = json_file(folder, "config.json");
    if (c->config == NULL)
        die("%s/config.json is missing", folder);
    c->like = architecture_of(c->config);
    read_config(m, c);
    c->index = json_get(json_file(folder, "model.safetensors.index.json"), "weight_map");
    const bool tied = json_flag(c->config, "tie_word_embeddings", false);
    m->mesh = mesh;
    m->embedding = read_tensor(c, m->vocabulary, m->hidden, "model.", "embed_tokens");
    m->norm = vector(read_tensor(c, 0, m->hidden, "model.", "norm"));
    m->head = pack(tied ? m->embedding : read_tensor(c, m->vocabulary, m->hidden, "", "lm_head"));
    m->layer = NEW(struct layer, m->layers);
    for (int64_t i = 0; i < m->layers; i++)
        read_layer(m, i, c);
    char sentence[256];
    const sy_ctx_options options = {.threads = threads,
                                    .trace = count_time,
                                    .trace_user = &m->operator_ns,
                                    .error = sentence,
                                    .error_bytes = sizeof sentence};
    if (sy_ctx_create(&m->ctx, &options) != SY_OK)
        die("%s", sentence);
    return m;
}
