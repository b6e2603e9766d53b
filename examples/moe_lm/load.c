/*
 * A model as Hugging Face saves it: config.json has its sizes, safetensors files have its weights (support/safetensors.c). The
 * three architectures are one decoder; the table below has what differs.
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

static void read_config(struct model *m, const json_t *config, const struct architecture *like)
{
    const json_t *const rope = json_get(config, "rope_parameters");
    const json_t *const eos = json_get(config, "eos_token_id");
    check_config(config, rope != NULL ? rope : json_get(config, "rope_scaling"));
    m->vocabulary = count(config, "vocab_size", 0);
    m->hidden = count(config, "hidden_size", 0);
    m->layers = count(config, "num_hidden_layers", 0);
    m->heads = count(config, "num_attention_heads", 0);
    m->kv_heads = count(config, "num_key_value_heads", m->heads);
    m->head_size = count(config, "head_dim", m->hidden / m->heads);
    m->experts = count(config, like->experts, 0);
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
    m->head_norm = like->norm;
    m->renormalise = like->renormalise || json_flag(config, "norm_topk_prob", false);
    const size_t n_eos = json_is_array(eos) ? json_array_size(eos) : eos != NULL;
    require(n_eos <= MOST_EOS, "config.json: more than %d tokens end a text", MOST_EOS);
    for (size_t i = 0; i < n_eos; i++)
        m->eos[m->n_eos++] = json_whole(json_is_array(eos) ? json_array_get(eos, i) : eos, 1 << 24,
                                        "eos_token_id", "config.json");
}

static void read_attention(const struct model *m, struct layer *l, struct checkpoint *c, const char *at)
{
    const int64_t hidden = m->hidden, q = m->heads * m->head_size, kv = m->kv_heads * m->head_size;
    const bool each = m->head_norm == NORM_EACH_HEAD;
    l->q = pack(read_tensor(c, q, hidden, "%s.self_attn.q_proj", at));
    l->k = pack(read_tensor(c, kv, hidden, "%s.self_attn.k_proj", at));
    l->v = pack(read_tensor(c, kv, hidden, "%s.self_attn.v_proj", at));
    l->o = pack(read_tensor(c, hidden, q, "%s.self_attn.o_proj", at));
    if (m->head_norm == NORM_NONE)
        return;
    l->q_norm = widen(read_tensor(c, 0, each ? m->head_size : q, "%s.self_attn.q_norm", at));
    l->k_norm = widen(read_tensor(c, 0, each ? m->head_size : kv, "%s.self_attn.k_norm", at));
}

/* A dense layer is one expert without a router. Of the others, a process reads the experts that it hosts. */
static void read_experts(const struct model *m, struct layer *l, struct checkpoint *c, const char *mlp,
                         const json_t *config, const struct architecture *like)
{
    char at[128];
    snprintf(at, sizeof at, "%s.gate.weight", mlp);
    const bool dense = like->has_dense_layers && !has_tensor(c, at);
    const int64_t experts = dense ? 1 : m->experts, hidden = m->hidden;
    if (!dense)
        l->router = pack(read_tensor(c, experts, hidden, "%s.gate", mlp));
    l->width = count(config, dense ? "intermediate_size" : like->width, 0);
    l->gate = NEW(struct matrix, experts);
    l->up = NEW(struct matrix, experts);
    l->down = NEW(struct matrix, experts);
    for (int64_t e = 0; e < experts; e++) {
        if (!dense && !mesh_hosts(m->mesh, e, experts))
            continue;
        snprintf(at, sizeof at, dense ? "%s" : "%s.experts.%lld", mlp, (long long)e);
        l->gate[e] = pack(read_tensor(c, l->width, hidden, "%s.%s", at, like->gate));
        l->up[e] = pack(read_tensor(c, l->width, hidden, "%s.%s", at, like->up));
        l->down[e] = pack(read_tensor(c, hidden, l->width, "%s.%s", at, like->down));
    }
}

struct model *model_open(const char *folder, struct mesh *mesh)
{
    struct model *const m = NEW(struct model, 1);
    const json_t *const config = json_file(folder, "config.json");
    require(config != NULL, "%s/config.json is missing", folder);
    const struct architecture *const like = architecture_of(config);
    struct checkpoint *const c = checkpoint_open(folder);
    read_config(m, config, like);
    m->mesh = mesh;
    m->embedding = read_tensor(c, m->vocabulary, m->hidden, "model.embed_tokens");
    m->norm = widen(read_tensor(c, 0, m->hidden, "model.norm"));
    const bool tied = json_flag(config, "tie_word_embeddings", false);
    m->head = pack(tied ? m->embedding : read_tensor(c, m->vocabulary, m->hidden, "lm_head"));
    m->layer = NEW(struct layer, m->layers);
    for (int64_t i = 0; i < m->layers; i++) {
        char at[64], mlp[96];
        snprintf(at, sizeof at, "model.layers.%lld", (long long)i);
        snprintf(mlp, sizeof mlp, "%s.%s", at, like->mlp);
        m->layer[i].attention_norm = widen(read_tensor(c, 0, m->hidden, "%s.input_layernorm", at));
        m->layer[i].mlp_norm = widen(read_tensor(c, 0, m->hidden, "%s.post_attention_layernorm", at));
        read_attention(m, &m->layer[i], c, at);
        read_experts(m, &m->layer[i], c, mlp, config, like);
    }
    return m;
}
