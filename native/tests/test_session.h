// Short helpers over the C ABI. Each one fails the test if its call fails.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "eliza/eliza_inference.h"
#include "test_model.h"

namespace eliza::test {

// Owns an error message of the ABI.
class ErrorText {
public:
    ErrorText() = default;
    ErrorText(ErrorText && other) noexcept : text_(std::exchange(other.text_, nullptr)) {}
    ~ErrorText() { eliza_inference_free_string(text_); }
    char ** out() {
        eliza_inference_free_string(text_);
        text_ = nullptr;
        return &text_;
    }
    std::string text() const { return text_ != nullptr ? text_ : ""; }

private:
    char * text_ = nullptr;
};

using ContextHandle = std::unique_ptr<EliInferenceContext, decltype(&eliza_inference_destroy)>;
using ChoicesHandle = std::unique_ptr<EliChoices, decltype(&eliza_inference_free_choices)>;
using StreamHandle = std::unique_ptr<EliLlmStream, decltype(&eliza_inference_llm_stream_close)>;

inline ContextHandle create(const std::map<std::string, std::string> & options = {},
                            const std::string & path = model_path()) {
    ErrorText error;
    ContextHandle context(eliza_inference_create(path.c_str(), error.out()), eliza_inference_destroy);
    EXPECT_NE(context, nullptr) << error.text();
    for (const auto & [key, value] : options) {
        EXPECT_EQ(eliza_inference_set_option(context.get(), key.c_str(), value.c_str(), error.out()), 0)
            << error.text();
    }
    return context;
}

inline eliza_llm_stream_config_t config() {
    eliza_llm_stream_config_t config{};
    config.slot_id = -1;
    return config;
}

// With f32_model_path(): passes of different shapes then differ only by the order of sums.
inline eliza_llm_stream_config_t full_precision_config() {
    eliza_llm_stream_config_t cfg = config();
    cfg.cache_type_k = cfg.cache_type_v = "f32";
    return cfg;
}

inline StreamHandle open(const ContextHandle & context, const eliza_llm_stream_config_t & cfg = config()) {
    ErrorText error;
    StreamHandle stream(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()),
                        eliza_inference_llm_stream_close);
    EXPECT_NE(stream, nullptr) << error.text();
    return stream;
}

inline std::vector<int32_t> tokenize(const ContextHandle & context, const std::string & text, bool add_special = false,
                                     bool parse_special = false) {
    ErrorText error;
    int * tokens = nullptr;
    size_t n = 0;
    EXPECT_EQ(eliza_inference_tokenize(context.get(), text.data(), text.size(), add_special, parse_special, &tokens, &n,
                                       error.out()),
              0)
        << error.text();
    std::vector<int32_t> result(tokens, tokens + n);
    eliza_inference_free_tokens(tokens);
    return result;
}

inline void prefill(const StreamHandle & stream, const std::vector<int32_t> & tokens) {
    ErrorText error;
    ASSERT_EQ(eliza_inference_llm_stream_prefill(stream.get(), tokens.data(), tokens.size(), error.out()), 0)
        << error.text();
}

// Calls eliza_inference_decide(), in full precision.
struct Decide {
    std::vector<int32_t> tokens, layers{};
    std::vector<uint64_t> ranges{};
    std::vector<eliza_ending_t> endings{};
    std::vector<float> states{};
    std::vector<double> legal{}, joint{}, option_mass{};
    uint64_t n_kept = 0;
    eliza_llm_stream_config_t cfg = full_precision_config();
    eliza_decide_t request{};
    ErrorText error{};

    void prepare() {
        request.size = sizeof request;
        request.tokens = tokens.data();
        request.n_tokens = tokens.size();
        request.config = &cfg;
        request.layers = layers.data();
        request.n_layers = layers.size();
        request.ranges = ranges.data();
        request.n_ranges = ranges.size() / 2;
        request.n_kept = n_kept;
        request.states_out = states.data();
        request.states_cap = states.size();
        request.endings = endings.data();
        request.n_endings = endings.size();
        request.legal_out = legal.empty() ? nullptr : legal.data();
        request.joint_out = joint.empty() ? nullptr : joint.data();
        request.option_mass_out = option_mass.empty() ? nullptr : option_mass.data();
        request.cap = std::max(legal.size(), joint.size());
    }

    int32_t call(const ContextHandle & context) {
        prepare();
        return eliza_inference_decide(context.get(), &request, error.out());
    }
};

struct Output {
    std::vector<int32_t> tokens;
    std::string text;
    int status = 0;
    std::string error;
};

// Calls next() until the end, or until `limit` tokens.
inline Output pull(const StreamHandle & stream, size_t limit = 1000, size_t text_cap = 1024) {
    Output output;
    ErrorText error;
    std::vector<char> text(text_cap);
    while (output.tokens.size() < limit) {
        int32_t tokens[32];
        size_t n = 0;
        output.status = eliza_inference_llm_stream_next(stream.get(), tokens, 32, &n, text.data(), text.size(), nullptr,
                                                        nullptr, error.out());
        if (output.status < 0) {
            output.error = error.text();
            break;
        }
        output.tokens.insert(output.tokens.end(), tokens, tokens + n);
        output.text += text.data();
        if (output.status == 1) break;
    }
    return output;
}

inline int collect(int32_t token, const char * text, void * user) {
    auto & output = *static_cast<Output *>(user);
    if (token >= 0) output.tokens.push_back(token);
    output.text += text;
    return 0;
}

// Calls generate() with at most max_tokens tokens.
inline Output push(const StreamHandle & stream, int32_t max_tokens) {
    Output output;
    ErrorText error;
    output.status = eliza_inference_llm_stream_generate(stream.get(), max_tokens, collect, &output, error.out());
    output.error = error.text();
    return output;
}

// Generates n tokens. The first call is cancelled before it begins, and another thread cancels each later call, every
// time a little later. The next call continues.
inline std::vector<int32_t> push_despite_cancels(const StreamHandle & stream, size_t n) {
    std::vector<int32_t> tokens;
    int n_cancelled = 0;
    for (int pause_us = 0; tokens.size() < n; pause_us += 200) {
        std::thread canceller([&] {
            std::this_thread::sleep_for(std::chrono::microseconds(pause_us));
            eliza_inference_llm_stream_cancel(stream.get());
        });
        if (pause_us == 0) canceller.join();
        const Output output = push(stream, static_cast<int32_t>(n - tokens.size()));
        if (canceller.joinable()) canceller.join();
        tokens.insert(tokens.end(), output.tokens.begin(), output.tokens.end());
        n_cancelled += output.status == ELIZA_ERR_CANCELLED ? 1 : 0;
        if (output.status < 0 && output.status != ELIZA_ERR_CANCELLED) {
            ADD_FAILURE() << output.error;
            break;
        }
    }
    EXPECT_GT(n_cancelled, 0);
    return tokens;
}

inline std::string payload(const std::map<std::string, std::vector<int32_t>> & leaves,
                           const std::string & model_id = "") {
    std::string json = R"({"modelId":")" + model_id + R"(","descriptors":[{"path":"action","leaves":[)";
    const char * leaf_comma = "";
    for (const auto & [name, tokens] : leaves) {
        json += leaf_comma + (R"({"name":")" + name + R"(","tokens":[)");
        const char * comma = "";
        for (const int32_t token : tokens) {
            json += comma + std::to_string(token);
            comma = ",";
        }
        json += "]}";
        leaf_comma = ",";
    }
    return json + "]}]}";
}

using Leaves = std::vector<std::vector<int32_t>>;

// A payload with leaves that are named by their index.
inline std::string payload(const Leaves & leaves) {
    std::string json = R"({"modelId":"","descriptors":[{"path":"p","leaves":[)";
    for (size_t i = 0; i < leaves.size(); ++i) {
        json += (i > 0 ? "," : "") + (R"({"name":")" + std::to_string(i) + R"(","tokens":[)");
        for (size_t t = 0; t < leaves[i].size(); ++t) json += (t > 0 ? "," : "") + std::to_string(leaves[i][t]);
        json += "]}";
    }
    return json + "]}]}";
}

inline ChoicesHandle prepare(const ContextHandle & context, const Leaves & leaves) {
    const std::string json = payload(leaves);
    ErrorText error;
    ChoicesHandle choices(
        eliza_inference_prepare_token_trie(context.get(), json.data(), json.size(), nullptr, error.out()),
        eliza_inference_free_choices);
    EXPECT_NE(choices, nullptr) << error.text();
    return choices;
}

inline std::string payload_of(const ContextHandle & context, const std::vector<std::string> & names) {
    std::map<std::string, std::vector<int32_t>> leaves;
    for (const std::string & name : names) leaves[name] = tokenize(context, name);
    return payload(leaves);
}

inline void set_trie(const StreamHandle & stream, const std::string & json, int mode) {
    ASSERT_EQ(eliza_inference_set_token_trie(stream.get(), json.data(), json.size(), mode), 0)
        << eliza_inference_last_error(stream.get());
}

inline eliza_llm_stream_stats_t stats(const StreamHandle & stream) {
    eliza_llm_stream_stats_t stats{};
    EXPECT_EQ(eliza_inference_llm_stream_stats(stream.get(), &stats, sizeof stats), 0);
    return stats;
}

// Returns the name of the leaf on which the last span ended, "" if it ended on none.
inline std::string leaf(const StreamHandle & stream, double * logprob = nullptr) {
    char name[256] = "";
    eliza_inference_token_trie_leaf(stream.get(), name, sizeof name, logprob);
    return name;
}

// A question in the model's chat format, so that it answers instead of ending immediately.
inline std::vector<int32_t> chat_prompt(const ContextHandle & context, const std::string & question) {
    return tokenize(context, "<|im_start|>user\n" + question + "<|im_end|>\n<|im_start|>assistant\n", true, true);
}

// Keeps a model from ending before it has written 300 characters.
inline constexpr const char * long_text_grammar = "root ::= [a-z ]{300}";

inline const std::vector<std::string> action_names = {"REPLY",       "SEND_EMAIL",  "SEND_MESSAGE", "CREATE_REMINDER",
                                                      "CREATE_NOTE", "CREATE_TASK", "IGNORE",       "STOP"};

}  // namespace eliza::test
