// The token trie as a sampler in llama.cpp's compute graph. The results are compared with sampling on the host. They
// must be equal bit for bit if the graph runs on the CPU.

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

TEST(DeviceSampler, TheTrieWorksInTheGraphAsOnTheHost) {
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

TEST(DeviceSampler, WithoutAVocabularyTheTrieStaysOnTheHost) {
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
