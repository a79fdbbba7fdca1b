// A plain llama.cpp program that chooses with the token-trie sampler in its chain:
//
//     sampler_in_chain MODEL.gguf PROMPT CHOICE...
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "eliza/eliza_inference.h"
#include "eliza/eliza_token_trie_sampler.h"
#include "llama-cpp.h"

static void check(bool ok, const char * what) {
    if (!ok) {
        fprintf(stderr, "sampler_in_chain: %s\n", what);
        exit(1);
    }
}

static std::vector<llama_token> tokenize(const llama_vocab * vocab, const std::string & text, bool add_special) {
    std::vector<llama_token> tokens(text.size() + 2);  // every token has at least one byte; two may be added
    const int32_t n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), tokens.data(),
                                     static_cast<int32_t>(tokens.size()), add_special, /*parse_special=*/false);
    check(n > 0, "cannot tokenize");
    tokens.resize(static_cast<size_t>(n));
    return tokens;
}

int main(int argc, char ** argv) {
    check(argc > 3, "usage: sampler_in_chain MODEL.gguf PROMPT CHOICE...");
    const std::vector<std::string> choices(argv + 3, argv + argc);

    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    const llama_model_ptr model(llama_model_load_from_file(argv[1], llama_model_default_params()));
    check(model != nullptr, "cannot load the model");
    const llama_vocab * vocab = llama_model_get_vocab(model.get());

    // The payload for the sampler: the tokens of every choice.
    std::vector<std::vector<llama_token>> leaves;
    std::string json;
    for (const std::string & choice : choices) {
        leaves.push_back(tokenize(vocab, choice, /*add_special=*/false));
        std::string ids;
        for (const llama_token token : leaves.back()) {
            ids += (ids.empty() ? "" : ",") + std::to_string(token);
        }
        json += json.empty() ? "" : ",";
        json += R"({"name":")" + std::to_string(leaves.size()) + R"(","tokens":[)" + ids + "]}";
    }
    json = R"({"modelId":"","descriptors":[{"path":"choice","leaves":[)" + json + "]}]}";

    const llama_sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    llama_sampler * trie = llama_sampler_init_token_trie(vocab, json.c_str(), ELIZA_TRIE_SAMPLE);
    check(trie != nullptr, "the sampler rejected the choices");
    llama_sampler_chain_add(chain.get(), trie);
    llama_sampler_chain_add(chain.get(), llama_sampler_init_greedy());  // or temp and dist, to sample

    std::vector<llama_token> tokens = tokenize(vocab, argv[2], /*add_special=*/true);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = static_cast<uint32_t>(tokens.size());
    for (const std::vector<llama_token> & leaf : leaves) {
        params.n_ctx += static_cast<uint32_t>(leaf.size());
    }
    params.n_batch = params.n_ctx;
    params.n_threads = static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency() / 2));
    params.n_threads_batch = params.n_threads;
    const llama_context_ptr context(llama_init_from_model(model.get(), params));
    check(context != nullptr, "cannot create a context");

    // llama.cpp's usual loop, until no choice continues the tokens so far. If one choice is the beginning of another,
    // any token other than the longer one's next token ends it.
    std::vector<llama_token> so_far;
    std::string chosen;
    for (bool goes_on = true; goes_on;) {
        const llama_batch batch = llama_batch_get_one(tokens.data(), static_cast<int32_t>(tokens.size()));
        check(llama_decode(context.get(), batch) == 0, "cannot decode");
        tokens = {llama_sampler_sample(chain.get(), context.get(), -1)};  // also calls accept on the chain
        so_far.push_back(tokens[0]);
        goes_on = false;
        for (size_t i = 0; i < leaves.size(); ++i) {
            if (leaves[i] == so_far) {
                chosen = choices[i];
            } else if (leaves[i].size() > so_far.size()) {
                goes_on |= std::equal(so_far.begin(), so_far.end(), leaves[i].begin());
            }
        }
    }
    printf("chosen: %s\n", chosen.c_str());
    return 0;
}
