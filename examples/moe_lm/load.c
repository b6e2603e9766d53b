/*
 * A model as Hugging Face saves it: config.json has its sizes, safetensors files have its weights (support/safetensors.c). The
 * three architectures are one decoder; the table below has what differs.
 */
#include "lm.h"

static const char file[] = "config.json";

enum { MOST = 1 << 24 }; /* of every size: the numbers of a matrix are fewer than 2^48 */

struct architecture {
    const char *name, *experts, *width; /* in config.json */
    const char *mlp, *gate, *up, *down; /* parts of the names of tensors */
    enum norm norm;                     /* of queries and keys */
    bool renormalise, has_dense_layers; /* renormalise: always; otherwise config.json says whether */
};

static const struct architecture known[] = {
    {.name = "OlmoeForCausalLM",
     .experts = "num_experts",
     .width = "intermediate_size",
     .mlp = "mlp",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .norm = NORM_ALL_HEADS},
    {.name = "Qwen3MoeForCausalLM",
     .experts = "num_experts",
     .width = "moe_intermediate_size",
     .mlp = "mlp",
     .gate = "gate_proj",
     .up = "up_proj",
     .down = "down_proj",
     .norm = NORM_EACH_HEAD,
     .has_dense_layers = true},
    {.name = "MixtralForCausalLM",
     .experts = "num_local_experts",
     .width = "intermediate_size",
     .mlp = "block_sparse_moe",
     .gate = "w1",
     .up = "w3",
     .down = "w2",
     .norm = NORM_NONE,
     .renormalise = true},
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
static int64_t size(const json_t *config, const char *key, int64_t otherwise)
{
    const json_t *const value = json_get(config, key);
    return value == NULL && otherwise > 0 ? otherwise : json_whole(file, value, 1, MOST, key);
}

/* What this program does not compute is an error, not another text. */
static void check_config(const json_t *config, const json_t *rope)
{
    static const char *const only[][2] = {
        {"hidden_act", "\"silu\""}, {"attention_bias", "false"}, {"clip_qkv", "null"}};
    for (int i = 0; i < 3; i++) {
        const json_t *const value = json_get(config, only[i][0]);
        require(value == NULL || strcmp(json_shown(value), only[i][1]) == 0, "config.json: %s is %s, want %s",
                only[i][0], json_shown(value), only[i][1]);
    }
    require(rope == NULL || json_is_object(rope),
            "config.json: the parameters of rotary positions are not an object");
    const char *const type = json_text(file, rope, "rope_type", json_text(file, rope, "type", "default"));
    require(strcmp(type, "default") == 0, "config.json: rotary positions of type %s, want default", type);
    require(json_get(config, "sliding_window") == NULL ||
                !json_flag(file, config, "use_sliding_window", true),
            "config.json: sliding_window is set, want null");
}

/* Newer versions of transformers write num_local_experts in place of num_experts. */
static const char *expert_key(const json_t *config, const struct architecture *like)
{
    const char *const other = "num_local_experts";
    return json_get(config, like->experts) == NULL && json_get(config, other) != NULL ? other : like->experts;
}

static void read_config(struct model *m, const json_t *config, const struct architecture *like)
{
    const json_t *const rope = json_get(config, "rope_parameters");
    const json_t *const eos = json_get(config, "eos_token_id");
    check_config(config, rope != NULL ? rope : json_get(config, "rope_scaling"));
    m->vocabulary = size(config, "vocab_size", 0);
    m->hidden = size(config, "hidden_size", 0);
    m->layers = size(config, "num_hidden_layers", 0);
    m->heads = size(config, "num_attention_heads", 0);
    m->kv_heads = size(config, "num_key_value_heads", m->heads);
    m->head_size = size(config, "head_dim", m->hidden / m->heads);
    m->experts = size(config, expert_key(config, like), 0);
    m->top_k = size(config, "num_experts_per_tok", 0);
    m->positions = size(config, "max_position_embeddings", MOST);
    m->eps = (float)json_real_at(file, config, "rms_norm_eps", 1e-5);
    m->theta = json_real_at(file, rope, "rope_theta", json_real_at(file, config, "rope_theta", 10000));
    m->head_norm = like->norm;
    m->renormalise = like->renormalise || json_flag(file, config, "norm_topk_prob", false);
    require(m->heads * m->head_size <= MOST && m->heads % m->kv_heads == 0 && m->head_size % 2 == 0 &&
                m->top_k <= m->experts,
            "config.json: %lld heads of %lld for %lld, top %lld of %lld experts do not fit together",
            (long long)m->heads, (long long)m->head_size, (long long)m->kv_heads, (long long)m->top_k,
            (long long)m->experts);
    require(m->eps >= 0 && m->theta > 0,
            "config.json: rms_norm_eps is %g, rope_theta is %g, want numbers above 0", (double)m->eps,
            m->theta);
    m->n_eos = json_is_array(eos) ? (int)json_array_size(eos) : eos != NULL;
    require(m->n_eos <= MOST_EOS, "config.json: more than %d tokens end a text", MOST_EOS);
    for (int i = 0; i < m->n_eos; i++)
        m->eos[i] = json_whole(file, json_is_array(eos) ? json_array_get(eos, (size_t)i) : eos, 0, MOST,
                               "eos_token_id");
}

/* A dense layer is one expert without a router. Of the others, a process reads the experts that it hosts. */
static void read_layer(const struct model *m, int64_t i, const struct checkpoint *c, const json_t *config,
                       const struct architecture *like)
{
    struct layer *const l = &m->layer[i];
    const int64_t hidden = m->hidden, q = m->heads * m->head_size, kv = m->kv_heads * m->head_size;
    const bool each = m->head_norm == NORM_EACH_HEAD;
    char at[64], mlp[96], router[128], expert[128];
    snprintf(at, sizeof at, "model.layers.%lld", (long long)i);
    snprintf(mlp, sizeof mlp, "%s.%s", at, like->mlp);
    snprintf(router, sizeof router, "%s.gate", mlp);
    l->attention_norm = widen(read_tensor(c, 0, hidden, "%s.input_layernorm", at));
    l->q = pack(read_tensor(c, q, hidden, "%s.self_attn.q_proj", at));
    l->k = pack(read_tensor(c, kv, hidden, "%s.self_attn.k_proj", at));
    l->v = pack(read_tensor(c, kv, hidden, "%s.self_attn.v_proj", at));
    l->o = pack(read_tensor(c, hidden, q, "%s.self_attn.o_proj", at));
    if (m->head_norm != NORM_NONE) {
        l->q_norm = widen(read_tensor(c, 0, each ? m->head_size : q, "%s.self_attn.q_norm", at));
        l->k_norm = widen(read_tensor(c, 0, each ? m->head_size : kv, "%s.self_attn.k_norm", at));
    }
    l->mlp_norm = widen(read_tensor(c, 0, hidden, "%s.post_attention_layernorm", at));

    const bool dense = like->has_dense_layers && !has_tensor(c, router);
    const int64_t experts = dense ? 1 : m->experts;
    if (!dense)
        l->router = pack(read_tensor(c, experts, hidden, "%s", router));
    l->width = size(config, dense ? "intermediate_size" : like->width, 0);
    l->gate = NEW(struct matrix, experts);
    l->up = NEW(struct matrix, experts);
    l->down = NEW(struct matrix, experts);
    for (int64_t e = 0; e < experts; e++)
        if (dense || mesh_hosts(m, e)) {
            snprintf(expert, sizeof expert, dense ? "%s" : "%s.experts.%lld", mlp, (long long)e);
            l->gate[e] = pack(read_tensor(c, l->width, hidden, "%s.%s", expert, like->gate));
            l->up[e] = pack(read_tensor(c, l->width, hidden, "%s.%s", expert, like->up));
            l->down[e] = pack(read_tensor(c, hidden, l->width, "%s.%s", expert, like->down));
        }
}

struct model *model_open(const char *folder, struct mesh *mesh)
{
    struct model *const m = NEW(struct model, 1);
    const json_t *const config = json_file(folder, file);
    require(config != NULL, "%s/config.json is missing", folder);
    const struct architecture *const like = architecture_of(config);
    const struct checkpoint *const c = checkpoint_open(folder);
    const bool tied = json_flag(file, config, "tie_word_embeddings", false);
    read_config(m, config, like);
    m->mesh = mesh;
    m->embedding = read_tensor(c, m->vocabulary, m->hidden, "model.embed_tokens");
    m->norm = widen(read_tensor(c, 0, m->hidden, "model.norm"));
    m->head = pack(tied ? m->embedding : read_tensor(c, m->vocabulary, m->hidden, "lm_head"));
    m->layer = NEW(struct layer, m->layers);
    for (int64_t i = 0; i < m->layers; i++)
        read_layer(m, i, c, config, like);
    return m;
}
