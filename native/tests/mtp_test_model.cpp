#include "mtp_test_model.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "model_file.h"

namespace eliza::test {
namespace {

constexpr uint32_t width = 64, attention_heads = 4, kv_heads = 2;
constexpr uint32_t head_width = width / attention_heads, kv_width = kv_heads * head_width;
constexpr uint32_t ff_width = 128, n_experts = 4, expert_width = 64;
constexpr uint32_t delta_heads = 4, delta_groups = 2, delta_width = 16, conv_length = 4;
constexpr uint32_t value_width = delta_heads * delta_width;
constexpr uint32_t conv_width = value_width + 2 * delta_groups * delta_width;  // values, keys and queries
constexpr uint32_t attention_interval = 4, sliding_window = 64;

// The logit of the next word of the cycle, and the standard deviation of all other logits, about as in a trained model.
// The largest of two thousand others is about 9.
constexpr float next_logit = 14.0f, logit_std = 2.5f;

// The total that the layers of a random model add, and the part of the trunk's hidden state that a random head uses,
// relative to the size of an embedding. With larger values heads never predict correctly; with smaller ones they always
// do.
constexpr float trunk_gain = 0.7f, hidden_gain = 0.7f;

// The embedding, and an output in which each word has a large logit after its predecessor in the cycle. The logits of
// control tokens are zero, so that nothing ends.
void add_words(ModelFile & file) {
    const std::vector<int32_t> types = file.token_types();
    const auto n_vocab = static_cast<int64_t>(types.size());
    const float * embedding = file.add_random("token_embd.weight", {width, n_vocab}, std::sqrt(float{width}));
    const float pull = next_logit / width;
    float * output =
        file.add_random("output.weight", {width, n_vocab}, std::sqrt(logit_std * logit_std - width * pull * pull));

    std::mt19937 random(1);
    std::vector<std::pair<uint32_t, int64_t>> cycle;
    for (int64_t token = 0; token < n_vocab; ++token) {
        if (types[static_cast<size_t>(token)] == LLAMA_TOKEN_TYPE_NORMAL) {
            cycle.emplace_back(static_cast<uint32_t>(random()), token);
        } else {
            std::fill_n(output + token * width, width, 0.0f);
        }
    }
    std::sort(cycle.begin(), cycle.end());
    for (size_t i = 0; i < cycle.size(); ++i) {
        const float * word = embedding + cycle[i].second * width;
        float * next = output + cycle[(i + 1) % cycle.size()].second * width;
        for (uint32_t j = 0; j < width; ++j) next[j] += pull * word[j];
    }
    file.add_constant("output_norm.weight", width, 1.0f);
}

// `gain` scales the output of attention and of the feed-forward network.
void add_attention(ModelFile & file, const std::string & block, uint32_t query_width, float gain) {
    // Sharp queries, so that attention picks tokens instead of averaging them.
    file.add_random(block + "attn_q.weight", {width, query_width}, 1.5f);
    file.add_random(block + "attn_k.weight", {width, kv_width}, 1.5f);
    file.add_random(block + "attn_v.weight", {width, kv_width}, 1.0f);
    file.add_random(block + "attn_output.weight", {width, width}, 2.0f * gain);
}

void add_feed_forward(ModelFile & file, const std::string & block, const std::string & suffix, uint32_t inner,
                      float gain) {
    file.add_random(block + "ffn_gate" + suffix, {width, inner}, 1.0f);
    file.add_random(block + "ffn_up" + suffix, {width, inner}, 1.0f);
    file.add_random(block + "ffn_down" + suffix, {inner, width}, 2.0f * gain);
}

void add_delta_net(ModelFile & file, const std::string & block, float gain) {
    file.add_random(block + "attn_qkv.weight", {width, conv_width}, 1.0f);
    file.add_random(block + "attn_gate.weight", {width, value_width}, 1.0f);
    file.add_random(block + "ssm_conv1d.weight", {conv_length, conv_width}, 1.0f);
    file.add_constant(block + "ssm_dt.bias", delta_heads, 0.0f);
    file.add_constant(block + "ssm_a", delta_heads, -0.1f);  // remembers about ten tokens
    file.add_random(block + "ssm_alpha.weight", {width, delta_heads}, 1.0f);
    file.add_random(block + "ssm_beta.weight", {width, delta_heads}, 1.0f);
    file.add_constant(block + "ssm_norm.weight", delta_width, 1.0f);
    file.add_random(block + "ssm_out.weight", {value_width, width}, 2.0f * gain);
}

// Half of the sum comes from the shared expert.
void add_experts(ModelFile & file, const std::string & block, float gain) {
    file.add_random(block + "ffn_gate_inp.weight", {width, n_experts}, 1.0f);
    file.add_constant(block + "exp_probs_b.bias", n_experts, 0.0f);
    file.add_random(block + "ffn_gate_exps.weight", {width, expert_width, n_experts}, 1.0f);
    file.add_random(block + "ffn_up_exps.weight", {width, expert_width, n_experts}, 1.0f);
    file.add_random(block + "ffn_down_exps.weight", {expert_width, width, n_experts}, gain);
    add_feed_forward(file, block, "_shexp.weight", expert_width, gain / 2.0f);
}

// The specifics of an architecture: its keys, and its layers by number.
struct Architecture {
    uint32_t n_trunk;
    void (*set_keys)(ModelFile & file, uint32_t n_layers);
    void (*add_layer)(ModelFile & file, const std::string & block, uint32_t layer, bool in_head, float gain);
};

void set_glm4moe_keys(ModelFile & file, uint32_t) {
    file.set("leading_dense_block_count", 1);
    file.set("expert_count", n_experts);
    file.set("expert_used_count", 2);
    file.set("expert_shared_count", 1);
    file.set("expert_feed_forward_length", expert_width);
}

void add_glm4moe_layer(ModelFile & file, const std::string & block, uint32_t layer, bool, float gain) {
    file.add_constant(block + "post_attention_norm.weight", width, 1.0f);
    add_attention(file, block, width, gain);
    if (layer == 0) {
        add_feed_forward(file, block, ".weight", ff_width, gain);
    } else {
        add_experts(file, block, gain);
    }
}

void set_qwen35_keys(ModelFile & file, uint32_t) {
    file.set("full_attention_interval", attention_interval);
    file.set_array<int32_t>("rope.dimension_sections", GGUF_TYPE_INT32, {4, 2, 2, 0});
    file.set("ssm.conv_kernel", conv_length);
    file.set("ssm.state_size", delta_width);
    file.set("ssm.group_count", delta_groups);
    file.set("ssm.time_step_rank", delta_heads);
    file.set("ssm.inner_size", value_width);
}

void add_qwen35_layer(ModelFile & file, const std::string & block, uint32_t layer, bool in_head, float gain) {
    file.add_constant(block + "post_attention_norm.weight", width, 1.0f);
    if (in_head || (layer + 1) % attention_interval == 0) {
        add_attention(file, block, 2 * width, gain);  // each head's query is followed by its gate
        file.add_constant(block + "attn_q_norm.weight", head_width, 1.5f);
        file.add_constant(block + "attn_k_norm.weight", head_width, 1.5f);
    } else {
        add_delta_net(file, block, gain);
    }
    add_feed_forward(file, block, ".weight", ff_width, gain);
}

void set_step35_keys(ModelFile & file, uint32_t n_layers) {
    file.set("attention.sliding_window", sliding_window);
    std::vector<uint8_t> slides(n_layers, 1);
    for (uint32_t layer = 0; layer < n_layers; layer += 2) slides[layer] = 0;
    file.set_array("attention.sliding_window_pattern", GGUF_TYPE_BOOL, slides);
    file.set("expert_feed_forward_length", expert_width);  // required even without experts
}

void add_step35_layer(ModelFile & file, const std::string & block, uint32_t, bool, float gain) {
    file.add_constant(block + "ffn_norm.weight", width, 1.0f);
    add_attention(file, block, width, gain);
    add_feed_forward(file, block, ".weight", ff_width, gain);
}

const std::map<std::string, Architecture> architectures = {
    {"glm4moe", {2, set_glm4moe_keys, add_glm4moe_layer}},
    {"qwen35", {4, set_qwen35_keys, add_qwen35_layer}},
    {"step35", {2, set_step35_keys, add_step35_layer}},
};

// The additional tensors of a head: they combine the embedding of the last word with the previous hidden state.
void add_join(ModelFile & file, const std::string & block, float gain) {
    file.add_constant(block + "nextn.enorm.weight", width, 1.0f);
    file.add_constant(block + "nextn.hnorm.weight", width, 1.0f);
    float * join = file.add_random(block + "nextn.eh_proj.weight", {2 * width, width}, std::sqrt(2.0f) * gain);
    for (uint32_t row = 0; row < width; ++row) {
        std::fill_n(join + row * 2 * width, width, 0.0f);
        join[row * 2 * width + row] = 1.0f;
    }
}

void write_model(const MtpModelSpec & spec, const Architecture & architecture, const std::string & path) {
    const auto n_head_layers = static_cast<uint32_t>(spec.n_heads);
    const uint32_t n_trunk = architecture.n_trunk, n_layers = n_trunk + n_head_layers;
    ModelFile file(spec.arch, width);
    file.set("context_length", 4096);
    file.set("embedding_length", width);
    file.set("feed_forward_length", ff_width);
    file.set("attention.head_count", attention_heads);
    file.set("attention.head_count_kv", kv_heads);
    file.set_real("attention.layer_norm_rms_epsilon", 1e-6f);
    file.set("block_count", n_layers);
    file.set("nextn_predict_layers", n_head_layers);
    architecture.set_keys(file, n_layers);

    add_words(file);
    const float gain = spec.head == MtpHead::agrees ? 0.0f : 1.0f;
    const float layer_gain = gain * trunk_gain / std::sqrt(static_cast<float>(n_trunk));
    const uint32_t begin = spec.trunk ? 0 : n_trunk, end = spec.head == MtpHead::absent ? n_trunk : n_layers;
    for (uint32_t layer = begin; layer < end; ++layer) {
        const std::string block = "blk." + std::to_string(layer) + ".";
        const bool in_head = layer >= n_trunk;
        file.add_constant(block + "attn_norm.weight", width, 1.0f);
        architecture.add_layer(file, block, layer, in_head, layer_gain);
        if (in_head) add_join(file, block, gain * hidden_gain);
    }
    file.write(path);
}

}  // namespace

std::string mtp_model_path(const MtpModelSpec & spec) {
    struct Files {
        std::map<std::string, std::string> paths;
        ~Files() {
            std::error_code ignored;
            for (const auto & [name, path] : paths) std::filesystem::remove(path, ignored);
        }
    };
    static Files files;
    const auto architecture = architectures.find(spec.arch);
    if (architecture == architectures.end() || spec.n_heads < 1 || (spec.head == MtpHead::absent && !spec.trunk)) {
        throw std::invalid_argument("no such model of the architecture " + std::string(spec.arch));
    }
    const std::string name = std::string(spec.arch) + "-" + std::to_string(static_cast<int>(spec.head)) + "-" +
                             std::to_string(spec.n_heads) + (spec.trunk ? "" : "-head");
    const auto found = files.paths.find(name);
    if (found != files.paths.end()) return found->second;
    const std::string file = "eliza-mtp-" + name + "-" + std::to_string(getpid()) + ".gguf";
    const std::string path = (std::filesystem::temp_directory_path() / file).string();
    write_model(spec, architecture->second, path);
    return files.paths[name] = path;
}

}  // namespace eliza::test
