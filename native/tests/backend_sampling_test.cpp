// Sampling in the compute graph: the token trie as a backend sampler of llama.cpp, and decisions that copy only the
// logits of the allowed tokens. The results are compared with sampling on the host. They must be equal bit for bit if
// the graph runs on the CPU.

#include <cmath>
#include <random>

#include "eliza/eliza_token_trie_sampler.h"
#include "llama-cpp.h"
#include "test_session.h"

namespace eliza::test {
namespace {

std::map<std::string, std::vector<int32_t>> random_leaves(std::mt19937 & random, size_t n) {
    std::map<std::string, std::vector<int32_t>> leaves;
    for (size_t i = 0; i < n; ++i) {
        std::vector<int32_t> & tokens = leaves[std::to_string(i)];
        tokens.resize(1 + random() % 5);
        for (int32_t & token : tokens) token = static_cast<int32_t>(300 + random() % 6);
    }
    return leaves;
}

TEST(BackendSampling, DecisionsNeedOnlyTheAllowedLogits) {
    std::map<std::string, ContextHandle> contexts;
    for (const char * setting : {"on", "off"}) {
        // restricted_head is off, because backend sampling needs a pass that computes all logits.
        contexts.emplace(setting,
                         create({{"backend_sampling", setting}, {"n_threads", "1"}, {"restricted_head", "off"}}));
    }
    std::mt19937 random(31);
    for (int round = 0; round < 200; ++round) {
        const std::string trie = payload(random_leaves(random, 1 + random() % 20));
        std::vector<int32_t> prompt(3 + random() % 10);
        for (int32_t & token : prompt) token = static_cast<int32_t>(20 + random() % 900);
        const int mode = static_cast<int>(random() % 2);
        std::vector<std::vector<int32_t>> tokens;
        for (const auto & [setting, context] : contexts) {
            eliza_llm_stream_config_t cfg = config();
            cfg.temperature = 1.0f;
            ASSERT_EQ(eliza_inference_set_option(context.get(), "seed", std::to_string(round).c_str(), nullptr), 0);
            const char * strategy = round % 3 == 0 ? "tree" : "skip-ahead";
            ASSERT_EQ(eliza_inference_set_option(context.get(), "strategy", strategy, nullptr), 0);
            const StreamHandle stream = open(context, cfg);
            prefill(stream, prompt);
            set_trie(stream, trie, mode);
            tokens.push_back(pull(stream, 8).tokens);  // beyond the span, where all logits are needed again
            const auto go_on = [&] {
                const Output output = pull(stream, 1);
                EXPECT_GE(output.status, 0) << output.error;
                tokens.back().insert(tokens.back().end(), output.tokens.begin(), output.tokens.end());
            };
            set_trie(stream, trie, mode);
            go_on();
            set_trie(stream, trie, mode);
            go_on();
            eliza_inference_clear_token_trie(stream.get());
            go_on();
        }
        ASSERT_EQ(tokens[0], tokens[1]) << "round " << round;
    }
}

TEST(BackendSampling, CopiesOnlyTheAllowedLogits) {
    const auto row = static_cast<int64_t>(sizeof(float)) * load_model()->n_vocab();
    for (const char * setting : {"on", "off"}) {
        const ContextHandle context = create({{"backend_sampling", setting},
                                              {"n_threads", "1"},
                                              {"restricted_head", "off"},
                                              {"strategy", "skip-ahead"}});
        const StreamHandle stream = open(context);
        prefill(stream, {30, 31, 32});
        const int64_t after_prompt = stats(stream).bytes_copied;
        EXPECT_EQ(after_prompt, row);  // the allowed tokens are not known yet
        pull(stream, 1);
        set_trie(stream, payload({{"a", {300, 301}}, {"b", {300, 302}}, {"c", {303}}}), ELIZA_TRIE_STOP_AT_LEAF);
        pull(stream, 1);
        // The token before the span was not decoded yet: one pass, one row.
        const int64_t copied = stats(stream).bytes_copied - after_prompt;
        if (setting == std::string("on")) {
            EXPECT_GT(copied, 0);
            EXPECT_LE(copied, static_cast<int64_t>(sizeof(float)) * 64);
        } else {
            EXPECT_EQ(copied, row);
        }
    }
}

// Greedy decoding with a chain of trie and greedy, attached to the context or applied on the host.
std::vector<llama_token> decode(const Model & model, const std::string & trie, int mode, bool on_backend, bool top_k) {
    llama_sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    if (top_k) llama_sampler_chain_add(chain.get(), llama_sampler_init_top_k(700));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_token_trie(model.vocab(), trie.c_str(), mode));
    // llama.cpp's greedy sampler returns indices instead of tokens if candidates were dropped in the graph.
    llama_sampler_chain_add(chain.get(), top_k ? llama_sampler_init_dist(1) : llama_sampler_init_greedy());
    llama_sampler_seq_config attached{0, chain.get()};
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 128;
    params.n_threads = params.n_threads_batch = 1;
    params.n_outputs_max_per_seq = 1;
    if (on_backend) {
        params.samplers = &attached;
        params.n_samplers = 1;
    }
    const llama_context_ptr context(llama_init_from_model(model.get(), params));
    std::vector<llama_token> tokens = {30, 31, 32}, output;
    for (int i = 0; i < 8; ++i) {
        EXPECT_EQ(llama_decode(context.get(), llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()))),
                  0);
        // If the graph did not select a token, llama_sampler_sample() runs the chain on the host.
        EXPECT_EQ(llama_get_sampled_token_ith(context.get(), -1) != LLAMA_TOKEN_NULL, on_backend);
        output.push_back(llama_sampler_sample(chain.get(), context.get(), -1));
        tokens = {output.back()};
    }
    return output;
}

TEST(BackendSampling, TheTrieWorksInTheGraphAsOnTheHost) {
    const auto model = load_model();
    std::mt19937 random(7);
    for (int round = 0; round < 40; ++round) {
        const std::string trie = payload(random_leaves(random, 1 + random() % 12));
        for (const int mode : {0, 1}) {
            ASSERT_EQ(decode(*model, trie, mode, true, false), decode(*model, trie, mode, false, false))
                << trie << " mode " << mode;
        }
        // After top-k, the trie's tokens must be found among the candidates. Mode 0 leaves one of them.
        const std::vector<llama_token> in_graph = decode(*model, trie, 0, true, true);
        const std::vector<llama_token> on_host = decode(*model, trie, 0, false, true);
        ASSERT_EQ(in_graph.front(), on_host.front()) << trie;
    }
}

TEST(BackendSampling, WithoutAVocabularyTheTrieStaysOnTheHost) {
    const llama_sampler_ptr sampler(
        llama_sampler_init_token_trie(nullptr, payload({{"a", {1, 2}}}).c_str(), ELIZA_TRIE_ARGMAX));
    ASSERT_NE(sampler, nullptr);
    EXPECT_FALSE(sampler->iface->backend_init(sampler.get(), ggml_backend_cpu_buffer_type(), 1));
    const auto model = load_model();
    const llama_sampler_ptr known(
        llama_sampler_init_token_trie(model->vocab(), payload({{"a", {1, 2}}}).c_str(), ELIZA_TRIE_ARGMAX));
    EXPECT_TRUE(known->iface->backend_init(known.get(), ggml_backend_cpu_buffer_type(), 1));
    EXPECT_FALSE(known->iface->backend_init(known.get(), ggml_backend_cpu_buffer_type(), 4));
}

}  // namespace
}  // namespace eliza::test
