#include "architectures/model_shape.h"

#include <set>
#include <string>
#include <vector>

namespace eliza {
namespace {

using Names = std::set<std::string>;

constexpr uint32_t n_ctx = 1024;
constexpr uint32_t window = 32;      // tokens in a sliding window
constexpr uint32_t n_attended = 24;  // tokens that sparse attention selects
constexpr uint32_t n_experts = 4, n_experts_used = 2;

// Architectures with attention through a compressed latent state.
const Names with_latent_attention = {"deepseek2",   "deepseek32", "glm-dsa",   "dots3note", "kimi-linear",
                                     "bailingmoe3", "kimi-k3",    "glm5-next", "mistral4",  "hy_v4"};

// Architectures with the same attention that decompress the state before it is cached.
const Names with_unpacked_latent_attention = {"minicpm3", "plm"};

// Architectures with two kinds of layers, distinguished by their numbers of heads.
const Names with_heads_by_layer = {"plamo2",  "jamba",       "nemotron_h",  "nemotron_h_moe", "granitehybrid", "lfm2",
                                   "lfm2moe", "kimi-linear", "bailingmoe3", "kimi-k3",        "glm5-next"};

// Architectures whose loader expects a list of the layers with a sliding window instead of a period.
const Names with_listed_windows = {"cohere2moe",  "mimo2",     "step35", "spark2_5", "muse-glimmer",
                                   "granite_swa", "dots3note", "maple",  "gemma4"};

const Names with_experts = {
    "llama4",     "cohere2moe",  "grok",       "qwen2moe",      "qwen3moe",       "qwen3next",    "qwen3vlmoe",
    "qwen35moe",  "qwen4exp",    "phimoe",     "dbrx",          "olmoe",          "arctic",       "deepseek",
    "deepseek2",  "deepseek32",  "dots3note",  "deepseek4",     "glm4moe",        "glm-dsa",      "exaone-moe",
    "bailingmoe", "bailingmoe2", "dots1",      "bailingmoe3",   "afmoe",          "ernie4_5-moe", "hunyuan-moe",
    "hy_v3",      "hy_v4",       "gpt-oss",    "lfm2moe",       "smallthinker",   "llada-moe",    "grovemoe",
    "minimax-01", "minimax-m2",  "minimax-m3", "rnd1",          "ernie4_5",       "paddleocr",    "mimo2",
    "kimi-k3",    "kimi-linear", "glm5-next",  "step35",        "mistral4",       "mellum",       "laguna",
    "maple",      "granitemoe",  "k2-horizon", "deepseek2-ocr", "nemotron_h_moe",
};

struct Shape {
    uint32_t n_layers = 2, n_embd = 128, n_heads = 2, n_kv_heads = 2, n_ff = 192;

    uint32_t head_size() const { return n_embd / n_heads; }
};

Shape shape_of(const std::string & name) {
    Shape shape;
    if (name == "llama4" || name == "deepseek4") {
        shape.n_layers = 4;  // every fourth layer is of another kind
    } else if (name == "nemotron_h" || name == "nemotron_h_moe") {
        shape.n_layers = 3;  // one layer of each kind
    } else if (name == "gemma4") {
        shape.n_layers = 5;
    } else if (name == "hrm_text") {
        shape.n_layers = 6;  // two layers, repeated
    } else if (name == "gemma3n") {
        shape.n_layers = 22;  // the first 20 cache keys and values
        shape.n_embd = 32;
        shape.n_ff = 64;
    }
    if (name == "qwen3" || name == "muse-glimmer" || name == "afmoe" || name == "llama") {
        shape.n_heads = 4;  // two of them share keys
    }
    if (with_latent_attention.count(name) > 0) {
        shape.n_kv_heads = 1;  // the latent state
    }
    if (name == "deepseek4") {
        shape.n_heads = 8;
        shape.n_kv_heads = 1;
    }
    return shape;
}

std::vector<uint32_t> every_other(uint32_t n_layers, uint32_t even, uint32_t odd) {
    std::vector<uint32_t> values(n_layers);
    for (uint32_t layer = 0; layer < n_layers; ++layer) {
        values[layer] = layer % 2 == 0 ? even : odd;
    }
    return values;
}

void describe_sizes(Metadata & metadata, const Shape & shape, uint32_t n_vocab) {
    const std::string & name = metadata.architecture();
    metadata.set("vocab_size", n_vocab);
    metadata.set("context_length", n_ctx);
    metadata.set("embedding_length", shape.n_embd);
    metadata.set("features_length", shape.n_embd);
    metadata.set("block_count", shape.n_layers);
    metadata.set("leading_dense_block_count", uint32_t{1});
    if (name == "nemotron_h" || name == "nemotron_h_moe") {
        metadata.set("feed_forward_length", std::vector<uint32_t>{0, 0, shape.n_ff});
    } else {
        metadata.set("feed_forward_length", shape.n_ff);
    }
    metadata.set("use_parallel_residual", false);
    metadata.set("logit_scale", 1.0f);
    metadata.set("residual_scale", 1.0f);
    metadata.set("attention.layer_norm_epsilon", 1e-5f);
    metadata.set("attention.layer_norm_rms_epsilon", 1e-5f);
    metadata.set("attention.group_norm_epsilon", 1e-5f);
    metadata.set("attention.group_norm_groups", uint32_t{8});
    metadata.set_shared("tokenizer.ggml.token_type_count", uint32_t{2});
    for (const char * key : {"xielu.alpha_n", "xielu.alpha_p", "xielu.beta"}) {
        metadata.set_shared(key, 1.0f);
    }
    metadata.set_shared("xielu.eps", 1e-7f);
    metadata.set("activation.situ_beta", 4.0f);
    metadata.set("activation.situ_linear_beta", 25.0f);
    metadata.set("attn_res.block_size", uint32_t{12});
    metadata.set("hrm.layers_per_stack", uint32_t{1});
    metadata.set("hrm.h_cycles", uint32_t{2});
    metadata.set("hrm.l_cycles", uint32_t{2});
}

void describe_heads(Metadata & metadata, const Shape & shape) {
    const std::string & name = metadata.architecture();
    if (with_heads_by_layer.count(name) == 0) {
        metadata.set("attention.head_count", shape.n_heads);
        metadata.set("attention.head_count_kv", shape.n_kv_heads);
    } else {
        std::vector<uint32_t> heads(shape.n_layers, shape.n_heads), kv_heads(shape.n_layers, shape.n_kv_heads);
        heads[1] = kv_heads[1] = 0;
        if (name == "glm5-next") {
            metadata.set("attention.head_count", shape.n_heads);
        } else {
            metadata.set("attention.head_count", heads);
        }
        metadata.set("attention.head_count_kv", kv_heads);
    }
    metadata.set("attention.max_alibi_bias", 8.0f);
    metadata.set("attention.clamp_kqv", 8.0f);
    metadata.set("attention.relative_buckets_count", uint32_t{8});
    metadata.set("full_attention_interval", uint32_t{2});

    const uint32_t quarter = shape.head_size() / 4;
    // Pairs of rotated values for time, height and width. With latent attention, only a part is rotated.
    metadata.set("rope.dimension_sections",
                 name == "bailingmoe3" ? std::vector<uint32_t>{4, 6, 6, 0} : std::vector<uint32_t>(4, quarter));
    if (name == "k2-horizon") {
        metadata.set("rope.scaling.yarn_beta_fast", 128.0f);
        metadata.set("rope.scaling.yarn_beta_slow", 4.0f);
        metadata.set("attention.value_expert_count", uint32_t{2});
        metadata.set("attention.value_expert_used_count", uint32_t{2});
    }
}

void describe_latent_attention(Metadata & metadata) {
    const std::string & name = metadata.architecture();
    constexpr uint32_t n_latent = 64, n_plain = 32, n_value = 32;
    const uint32_t n_rotated = name == "glm5-next" ? 0 : 32;
    metadata.set("attention.q_lora_rank", n_latent);
    metadata.set("attention.kv_lora_rank", n_latent);
    if (with_unpacked_latent_attention.count(name) > 0) {
        metadata.set("rope.dimension_count", n_rotated);
        metadata.set("attention.key_length", n_plain + n_rotated);
        metadata.set("attention.value_length", n_value);
    }
    if (with_latent_attention.count(name) == 0) {
        return;
    }
    metadata.set("rope.dimension_count", n_rotated);
    for (const std::string of : {"", "_swa"}) {
        if (of == "_swa" && name != "dots3note") {
            continue;
        }
        metadata.set("attention.key_length" + of, n_latent + n_rotated);
        metadata.set("attention.value_length" + of, n_latent);
        metadata.set("attention.key_length_mla" + of, n_plain + (n_rotated == 0 ? 32 : n_rotated));
        metadata.set("attention.value_length_mla" + of, n_value);
    }
    metadata.set("attention.kv_lora_rank_swa", n_latent);
}

void describe_windows(Metadata & metadata, const Shape & shape) {
    const std::string & name = metadata.architecture();
    metadata.set("attention.sliding_window", window);
    metadata.set("rope.freq_base_swa", 10000.0f);
    if (with_listed_windows.count(name) > 0) {
        metadata.set("attention.sliding_window_pattern", every_other(shape.n_layers, 0, 1));
    } else {
        metadata.set("attention.sliding_window_pattern", uint32_t{2});
    }
    if (name == "gemma4" || name == "gemma-embedding2") {
        metadata.set("embedding_length_per_layer_input", uint32_t{32});
        metadata.set("attention.shared_kv_layers", uint32_t{0});
        metadata.set("attention.key_length_swa", shape.head_size());
        metadata.set("attention.value_length_swa", shape.head_size());
    }
}

// An indexer, a small attention of its own, selects the tokens to attend to.
void describe_sparse_attention(Metadata & metadata, const Shape & shape) {
    const std::string & name = metadata.architecture();
    metadata.set("attention.indexer.head_count", name == "minimax-m3" ? shape.n_kv_heads : uint32_t{64});
    metadata.set("attention.indexer.key_length", name == "qwen4exp" ? shape.head_size() : uint32_t{128});
    metadata.set("attention.indexer.top_k", n_attended);
    metadata.set("attention.indexer.block_size", uint32_t{4});
    metadata.set("attention.indexer.kpool", uint32_t{4});
    metadata.set("attention.indexer.kpool_select_tail", true);
    metadata.set("attention.indexer.local_blocks", uint32_t{1});
    if (name == "dots3note" || name == "hy_v4") {
        metadata.set("attention.indexer.types", every_other(shape.n_layers, 1, 0));
    }
    if (name == "minimax-m3") {
        metadata.set("rope.dimension_count", uint32_t{32});
    }
}

void describe_experts(Metadata & metadata, const Shape & shape) {
    const std::string & name = metadata.architecture();
    if (with_experts.count(name) == 0) {
        return;
    }
    metadata.set("expert_count", n_experts);
    metadata.set("expert_used_count", n_experts_used);
    metadata.set("expert_feed_forward_length", shape.n_ff);
    metadata.set("expert_shared_feed_forward_length", shape.n_ff / 2);
    metadata.set("expert_shared_count", uint32_t{1});
    metadata.set("expert_latent_length", shape.n_embd);
    metadata.set("interleave_moe_layer_step", uint32_t{2});
    constexpr uint32_t sigmoid = 2, root_of_softplus = 4;
    metadata.set("expert_gating_func", name == "deepseek4" ? root_of_softplus : sigmoid);
    metadata.set("expert_group_scale", 1.0f);
    metadata.set("experts_per_group", uint32_t{1});
    metadata.set("expert_weights_scale", 1.0f);
    metadata.set("expert_weights_norm", true);
}

void describe_recurrence(Metadata & metadata, const Shape & shape) {
    const std::string & name = metadata.architecture();
    metadata.set("ssm.inner_size", 2 * shape.n_embd);
    metadata.set("ssm.conv_kernel", uint32_t{4});
    metadata.set("ssm.state_size", uint32_t{128});
    metadata.set("ssm.time_step_rank", shape.n_heads);
    metadata.set("ssm.group_count", name == "plamo2" ? uint32_t{0} : uint32_t{2});
    metadata.set("kda.head_dim", uint32_t{128});
    if (name != "bailingmoe3") {
        metadata.set("kda.safe_gate", true);
    }
    metadata.set("kda.gate_lower_bound", -5.0f);
    metadata.set("wkv.head_size", shape.head_size());
    metadata.set("time_mix_extra_dim", uint32_t{32});
    metadata.set("time_decay_extra_dim", uint32_t{32});
    metadata.set("attention.decay_lora_rank", uint32_t{32});
    metadata.set("attention.iclr_lora_rank", uint32_t{32});
    metadata.set("attention.value_residual_mix_lora_rank", uint32_t{32});
    metadata.set("attention.gate_lora_rank", uint32_t{32});
    metadata.set("token_shift_count", name == "rwkv6qwen2" || name == "arwkv7" ? uint32_t{1} : uint32_t{2});
    metadata.set("shortconv.l_cache", uint32_t{3});
}

// Several residual streams that are mixed between layers.
void describe_hyper_connections(Metadata & metadata, const Shape & shape) {
    const std::string & name = metadata.architecture();
    if (name != "qwen4exp" && name != "glm5-next" && name != "hy_v4" && name != "deepseek4") {
        return;
    }
    metadata.set("hyper_connection.count", uint32_t{4});
    metadata.set("hyper_connection.sinkhorn_iterations", uint32_t{2});
    metadata.set("hyper_connection.epsilon", 1e-6f);
    metadata.set("hyper_connection.low_rank", uint32_t{8});
    metadata.set("hyper_connection.magnitude", 2.0f);
    if (name == "deepseek4") {
        // Layers that see every token, every fourth and every 128th.
        metadata.set("attention.compress_ratios", std::vector<uint32_t>{0, 0, 4, 128});
        metadata.set("attention.compress_rope_freq_base", 160000.0f);
        metadata.set("attention.output_group_count", uint32_t{8});
        metadata.set("attention.output_lora_rank", uint32_t{32});
        metadata.set("attention.key_length", shape.head_size());
        metadata.set("attention.value_length", shape.head_size());
        metadata.set("rope.dimension_count", shape.head_size() / 2);
        metadata.set("hash_layer_count", uint32_t{0});
    } else {
        metadata.set("attention.compress_ratios", std::vector<uint32_t>(shape.n_layers, 4));
    }
}

// Embeddings of the last few tokens together, found by a hash.
void describe_ngram_embeddings(Metadata & metadata, const Shape & shape) {
    if (metadata.architecture() != "qwen4exp" && metadata.architecture() != "glm5-next") {
        return;
    }
    constexpr uint32_t n_tokens = 3, n_heads = 2 * (n_tokens - 1);
    constexpr uint64_t table_size = 1021;
    std::vector<uint64_t> offsets;
    for (uint64_t head = 0; head < n_heads; ++head) {
        offsets.push_back(head * table_size);
    }
    metadata.set("ple.layers", std::vector<uint32_t>{0});
    metadata.set("ple.ngram_size", n_tokens);
    metadata.set("ple.heads_per_ngram", uint32_t{2});
    metadata.set("ple.conv_kernel", uint32_t{4});
    metadata.set("ple.eos_token_id", uint32_t{2});
    metadata.set("ple.layer_multipliers", std::vector<uint64_t>{1, 3, 5});
    metadata.set("ple.head_offsets", offsets);
    metadata.set("ple.head_vocab_sizes", std::vector<uint64_t>(n_heads, table_size));
    metadata.set("embedding_length_per_layer_input", shape.n_embd / n_heads);
}

// Adapters that certain tokens activate: two tokens of the llama-spm vocabulary that occur in the checker's prompts.
void describe_adapters(Metadata & metadata) {
    if (metadata.architecture() != "graniteswitch") {
        return;
    }
    metadata.set("adapters.count", uint32_t{2});
    metadata.set("adapters.lora_rank", uint32_t{8});
    metadata.set("adapters.token_ids_activate", std::vector<uint32_t>{1404, 10524});  // user, mail
    metadata.set("adapters.token_ids_substitute", std::vector<uint32_t>{825, 2215});
}

void describe_clamps(Metadata & metadata) {
    const std::string & name = metadata.architecture();
    if (name == "bailingmoe3") {
        metadata.set("swiglu_clamp_exp", std::vector<float>{0.0f, 4.0f});
        metadata.set("swiglu_clamp_shexp", std::vector<float>{0.0f, 5.0f});
    } else if (name == "hy_v4" || name == "deepseek4" || name == "maple") {
        metadata.set("swiglu_clamp_exp", 7.0f);
    }
}

}  // namespace

void describe_model(Metadata & metadata, uint32_t n_vocab) {
    const Shape shape = shape_of(metadata.architecture());
    describe_sizes(metadata, shape, n_vocab);
    describe_heads(metadata, shape);
    describe_latent_attention(metadata);
    describe_windows(metadata, shape);
    describe_sparse_attention(metadata, shape);
    describe_experts(metadata, shape);
    describe_recurrence(metadata, shape);
    describe_hyper_connections(metadata, shape);
    describe_ngram_embeddings(metadata, shape);
    describe_adapters(metadata);
    describe_clamps(metadata);
}

}  // namespace eliza
