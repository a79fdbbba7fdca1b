// Decodes several sequences in one batch with plain llama.cpp: no server, no sampler, a fixed set of sequences. Its
// time is the lower limit for this work. Every step decodes one token of each sequence and takes the most likely next
// token.
//
//     batch_loop MODEL.gguf N_TOKENS N_THREADS defaults|equal [margins] < PROMPTS
//
// "defaults" leaves llama.cpp's default settings. "equal" uses the settings of the library's contexts and threads, see
// native/src/engine/pass/pass_runner.cpp and compute_threads.cpp. Both use N_THREADS compute threads.
//
// Each line of standard input is a prompt, as token ids. Writes JSON: the tokens of each sequence, and the time of
// each token, in seconds since decoding of the first prompt began. With "margins" it also writes the difference
// between each token's logit and the second best logit; computing these takes additional time.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ggml-cpu.h"
#include "llama-cpp.h"

namespace {

struct Sequence {
    std::vector<llama_token> prompt;
    std::vector<llama_token> tokens;
    std::vector<double> seconds;
    std::vector<float> margins;
};

void check(bool ok, const char * what) {
    if (!ok) {
        fprintf(stderr, "batch_loop: %s\n", what);
        exit(1);
    }
}

std::vector<Sequence> read_prompts() {
    std::vector<Sequence> sequences;
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream ids(line);
        sequences.emplace_back();
        for (llama_token token = 0; ids >> token;) {
            sequences.back().prompt.push_back(token);
        }
        check(!sequences.back().prompt.empty(), "standard input: expected a line of token ids");
    }
    check(!sequences.empty(), "standard input: expected at least one prompt");
    return sequences;
}

}  // namespace

int main(int argc, char ** argv) {
    check(argc >= 5, "usage: batch_loop MODEL.gguf N_TOKENS N_THREADS defaults|equal [margins] < PROMPTS");
    const auto n_tokens = static_cast<size_t>(std::max(1, atoi(argv[2])));
    const int32_t n_threads = std::max(1, atoi(argv[3]));
    const std::string settings = argv[4];
    check(settings == "defaults" || settings == "equal", "unknown settings: expected defaults or equal");
    const bool with_margins = argc > 5 && std::string(argv[5]) == "margins";
    std::vector<Sequence> sequences = read_prompts();

    llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    const llama_model_ptr model(llama_model_load_from_file(argv[1], llama_model_default_params()));
    check(model != nullptr, "cannot load the model");
    const int32_t n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model.get()));

    llama_context_params params = llama_context_default_params();
    params.n_seq_max = static_cast<uint32_t>(sequences.size());
    // With llama.cpp's default of separate KV caches, each sequence gets an equal part of the context.
    size_t longest = 0;
    for (const Sequence & sequence : sequences) {
        longest = std::max(longest, sequence.prompt.size() + n_tokens);
    }
    params.n_ctx = static_cast<uint32_t>(longest) * params.n_seq_max;
    params.n_threads = n_threads;
    params.n_threads_batch = n_threads;
    ggml_threadpool_params pool_params = ggml_threadpool_params_default(n_threads);
    if (settings == "equal") {
        params.n_batch = std::max(512u, params.n_seq_max);
        params.n_ubatch = params.n_batch;
        params.kv_unified = true;
        pool_params.poll = 1;
    }
    const std::unique_ptr<ggml_threadpool, decltype(&ggml_threadpool_free)> pool(ggml_threadpool_new(&pool_params),
                                                                                 ggml_threadpool_free);
    const llama_context_ptr context(llama_init_from_model(model.get(), params));
    check(context != nullptr, "cannot create a context");
    llama_attach_threadpool(context.get(), pool.get(), pool.get());

    llama_batch batch = llama_batch_init(static_cast<int32_t>(params.n_batch), 0, 1);
    std::vector<size_t> chosen_for;  // the sequences whose last token is in the batch
    const auto begin = std::chrono::steady_clock::now();
    const auto decode = [&] {
        check(llama_decode(context.get(), batch) == 0, "cannot decode");
        for (size_t n = 0; n < chosen_for.size(); ++n) {
            const size_t i = chosen_for[n];
            const float * logits = llama_get_logits(context.get()) + n * static_cast<size_t>(n_vocab);
            const auto best = static_cast<llama_token>(std::max_element(logits, logits + n_vocab) - logits);
            sequences[i].tokens.push_back(best);
            if (with_margins) {
                std::vector<float> sorted(logits, logits + n_vocab);
                std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
                sequences[i].margins.push_back(sorted[0] - sorted[1]);
            }
        }
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
        for (const size_t i : chosen_for) {
            sequences[i].seconds.push_back(taken.count());
        }
        chosen_for.clear();
        batch.n_tokens = 0;
    };
    const auto add = [&](llama_token token, size_t position, size_t sequence, bool is_last) {
        const int32_t at = batch.n_tokens++;
        batch.token[at] = token;
        batch.pos[at] = static_cast<llama_pos>(position);
        batch.n_seq_id[at] = 1;
        batch.seq_id[at][0] = static_cast<llama_seq_id>(sequence);
        batch.logits[at] = is_last;
        if (is_last) {
            chosen_for.push_back(sequence);
        }
        if (batch.n_tokens == static_cast<int32_t>(params.n_batch)) {
            decode();
        }
    };

    for (size_t i = 0; i < sequences.size(); ++i) {
        const std::vector<llama_token> & prompt = sequences[i].prompt;
        for (size_t at = 0; at < prompt.size(); ++at) {
            add(prompt[at], at, i, at + 1 == prompt.size());
        }
    }
    for (size_t n = 0; n < n_tokens; ++n) {
        if (batch.n_tokens > 0) {
            decode();
        }
        for (size_t i = 0; i < sequences.size() && n + 1 < n_tokens; ++i) {
            add(sequences[i].tokens.back(), sequences[i].prompt.size() + n, i, true);
        }
    }
    llama_batch_free(batch);

    nlohmann::json out = nlohmann::json::array();
    for (const Sequence & sequence : sequences) {
        out.push_back({{"tokens", sequence.tokens}, {"seconds", sequence.seconds}, {"margins", sequence.margins}});
    }
    std::cout << out.dump() << std::endl;
    return 0;
}
