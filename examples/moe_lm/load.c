/*
 * A model as Hugging Face saves it. config.json has its sizes. The weights are in model.safetensors, or in the files that
 * model.safetensors.index.json names: 8 bytes (length of the header), the header (JSON: type, shape and place of every tensor),
 * then the numbers. Files are mapped, so a process of a mesh reads the experts that it hosts and no others.
 */
#include "lm.h"

struct architecture {
    const char *name, *experts, *width; /* in config.json */
    const char *mlp, *gate, *up, *down; /* parts of the names of tensors */
    enum norm norm;                     /* of queries and keys */
    bool renormalise, has_dense_layers; /* renormalise false: config.json has it */
};

static const struct architecture known[] = {
    {"OlmoeForCausalLM", "num_experts", "intermediate_size", "mlp", "gate_proj", "up_proj", "down_proj",
     NORM_ALL_HEADS, false, false},
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

/* A file of the checkpoint, which is opened when it is first needed. */
static const struct shard *open_shard(struct checkpoint *c, const char *name)
{
    for (int i = 0; i < c->n; i++)
        if (strcmp(c->shard[i].file.name, name) == 0)
            return &c->shard[i];
    require(c->n < MOST_SHARDS, "the checkpoint has more than %d files", MOST_SHARDS);
    struct shard *const s = &c->shard[c->n++];
    s->file = map_file(c->folder, name);
    require(s->file.data != NULL, "%s/%s is missing", c->folder, name);
    uint64_t length = 0;
    for (int i = 7; i >= 0 && s->file.bytes >= 8; i--)
        length = length << 8 | (unsigned char)s->file.data[i];
    require(s->file.bytes >= 8 && length <= s->file.bytes - 8,
            "%s is truncated: its header ends beyond its end", name);
    json_error_t error = {.text = "another value"};
    s->header = json_loadb(s->file.data + 8, length, JSON_REJECT_DUPLICATES, &error);
    require(json_is_object(s->header), "%s: its header is not an object: %s", name, error.text);
    s->numbers = s->file.data + 8 + length;
    return s;
}

/* The file that has a tensor; NULL: none has it. */
static const struct shard *shard_of(struct checkpoint *c, const char *tensor)
{
    const char *const name = c->index != NULL ? json_text(c->index, tensor, NULL) : "model.safetensors";
    const struct shard *const s = name != NULL ? open_shard(c, name) : NULL;
    return s != NULL && json_object_get(s->header, tensor) != NULL ? s : NULL;
}

/* The tensor of this name, which must have this shape; rows 0: a vector. */
static struct weight read_tensor(struct checkpoint *c, int64_t rows, int64_t cols, const char *at,
                                 const char *what)
{
    static const char *const types[] = {[F32] = "F32", [F16] = "F16", [BF16] = "BF16"};
    char tensor[256];
    snprintf(tensor, sizeof tensor, "%s%s.weight", at, what);
    const struct shard *const s = shard_of(c, tensor);
    require(s != NULL, "the checkpoint has no tensor %s", tensor);
    const char *const file = s->file.name;
    const json_t *const entry = json_object_get(s->header, tensor);
    const json_t *const shape = json_object_get(entry, "shape");
    json_t *const want = rows > 0 ? json_pack("[I,I]", (json_int_t)rows, (json_int_t)cols)
                                  : json_pack("[I]", (json_int_t)cols);
    require(json_equal(shape, want), "%s: %s is %s, want %s as config.json says", file, tensor,
            shape != NULL ? json_dumps(shape, JSON_COMPACT | JSON_ENCODE_ANY) : "without a shape",
            json_dumps(want, JSON_COMPACT));
    json_decref(want);
    const char *const name = json_text(entry, "dtype", "missing");
    int type = F32;
    while (type <= BF16 && strcmp(name, types[type]) != 0)
        type++;
    require(type <= BF16, "%s: %s is of type %s, want F32, F16 or BF16", file, tensor, name);
    const json_t *const offsets = json_object_get(entry, "data_offsets");
    const int64_t begin = json_whole(json_array_get(offsets, 0), 1e15, "an offset", file);
    const int64_t end = json_whole(json_array_get(offsets, 1), 1e15, "an offset", file);
    const int64_t most = INT64_C(1) << 48; /* rows may be heads times their size */
    const int64_t vectors = rows > 0 ? rows : 1;
    require(rows <= most / cols, "%s: %s has more than %lld numbers", file, tensor, (long long)most);
    require(end - begin == vectors * cols * (type == F32 ? 4 : 2),
            "%s: the bytes of %s are not those of its shape", file, tensor);
    require(end <= s->file.data + s->file.bytes - s->numbers, "%s is truncated: %s ends beyond its end", file,
            tensor);
    return (struct weight){s->numbers + begin, type, vectors, cols};
}

static struct matrix read_matrix(struct checkpoint *c, int64_t rows, int64_t cols, const char *at,
                                 const char *what)
{
    return pack(read_tensor(c, rows, cols, at, what));
}

static float *read_vector(struct checkpoint *c, int64_t n, const char *at, const char *what)
{
    const struct weight w = read_tensor(c, 0, n, at, what);
    float *const v = NEW(float, n);
    read_row(v, &w, 0);
    return v;
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

/* A size in config.json; otherwise 0: it must be there. */
static int64_t count(const json_t *config, const char *key, int64_t otherwise)
{
    const double value = json_real_at(config, key, (double)otherwise);
    require(value >= 1 && value <= 1 << 24 && value == (double)(int64_t)value,
            "config.json: %s is %s, want a whole number from 1 to %d", key,
            json_get(config, key) != NULL ? "out of range" : "missing", 1 << 24);
    return (int64_t)value;
}

/* What this program does not compute is an error, not another text. */
static void check_config(const json_t *config, const json_t *rope)
{
    require(rope == NULL || json_is_object(rope),
            "config.json: the parameters of rotary positions are not an object");
    const char *const type = json_text(rope, "rope_type", json_text(rope, "type", "default"));
    const char *const activation = json_text(config, "hidden_act", "silu");
    const bool window = json_real_at(config, "sliding_window", 0) != 0;
    require(strcmp(type, "default") == 0, "config.json: rotary positions of type %s, want default", type);
    require(strcmp(activation, "silu") == 0, "config.json: hidden_act is %s, want silu", activation);
    require(!json_flag(config, "attention_bias", false), "config.json: attention_bias is true, want false");
    require(!window || !json_flag(config, "use_sliding_window", true),
            "config.json: sliding_window is set, want null");
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
    require(m->heads % m->kv_heads == 0 && m->head_size % 2 == 0 && m->top_k <= m->experts,
            "config.json: %lld heads of %lld for %lld, top %lld of %lld experts do not fit together",
            (long long)m->heads, (long long)m->head_size, (long long)m->kv_heads, (long long)m->top_k,
            (long long)m->experts);
    m->eps = (float)json_real_at(config, "rms_norm_eps", 1e-5);
    m->theta = json_real_at(rope, "rope_theta", json_real_at(config, "rope_theta", 10000));
    m->clip = (float)json_real_at(config, "clip_qkv", 0);
    require(m->eps >= 0 && m->theta > 0 && m->clip >= 0,
            "config.json: rms_norm_eps is %g, rope_theta is %g, clip_qkv is %g, want numbers above 0",
            (double)m->eps, m->theta, (double)m->clip);
    m->head_norm = c->like->norm;
    m->renormalise = c->like->renormalise || json_flag(config, "norm_topk_prob", false);
    const size_t n_eos = json_is_array(eos) ? json_array_size(eos) : eos != NULL;
    require(n_eos <= MOST_EOS, "config.json: more than %d tokens end a text", MOST_EOS);
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
    l->attention_norm = read_vector(c, hidden, at, "input_layernorm");
    l->q = read_matrix(c, q, hidden, at, "self_attn.q_proj");
    l->k = read_matrix(c, kv, hidden, at, "self_attn.k_proj");
    l->v = read_matrix(c, kv, hidden, at, "self_attn.v_proj");
    l->o = read_matrix(c, hidden, q, at, "self_attn.o_proj");
    if (like->norm != NORM_NONE) {
        const bool each = like->norm == NORM_EACH_HEAD;
        l->q_norm = read_vector(c, each ? m->head_size : q, at, "self_attn.q_norm");
        l->k_norm = read_vector(c, each ? m->head_size : kv, at, "self_attn.k_norm");
    }
    l->mlp_norm = read_vector(c, hidden, at, "post_attention_layernorm");

    snprintf(mlp, sizeof mlp, "%s%s.", at, like->mlp);
    snprintf(router, sizeof router, "%sgate.weight", mlp);
    const bool dense = like->has_dense_layers && shard_of(c, router) == NULL;
    const int64_t experts = dense ? 1 : m->experts;
    if (!dense)
        l->router = read_matrix(c, m->experts, hidden, mlp, "gate");
    l->width = count(c->config, dense ? "intermediate_size" : like->width, 0);
    l->gate = NEW(struct matrix, experts);
    l->up = NEW(struct matrix, experts);
    l->down = NEW(struct matrix, experts);
    for (int64_t e = 0; e < experts; e++) {
        if (!dense && !mesh_hosts(m->mesh, e, experts))
            continue;
        snprintf(expert, sizeof expert, dense ? "%s" : "%sexperts.%lld.", mlp, (long long)e);
        l->gate[e] = read_matrix(c, l->width, hidden, expert, like->gate);
        l->up[e] = read_matrix(c, l->width, hidden, expert, like->up);
        l->down[e] = read_matrix(c, hidden, l->width, expert, like->down);
    }
}

struct model *model_open(const char *folder, struct mesh *mesh)
{
    struct model *const m = NEW(struct model, 1);
    struct checkpoint *const c = NEW(struct checkpoint, 1);
    c->folder = folder;
    c->config = json_file(folder, "config.json");
    require(c->config != NULL, "%s/config.json is missing", folder);
    c->like = architecture_of(c->config);
    c->index = json_get(json_file(folder, "model.safetensors.index.json"), "weight_map");
    read_config(m, c);
    m->mesh = mesh;
    m->embedding = read_tensor(c, m->vocabulary, m->hidden, "model.", "embed_tokens");
    m->norm = read_vector(c, m->hidden, "model.", "norm");
    const bool tied = json_flag(c->config, "tie_word_embeddings", false);
    m->head = tied ? pack(m->embedding) : read_matrix(c, m->vocabulary, m->hidden, "", "lm_head");
    m->layer = NEW(struct layer, m->layers);
    for (int64_t i = 0; i < m->layers; i++)
        read_layer(m, i, c);
    return m;
}
