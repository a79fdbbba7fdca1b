// llama.cpp's own GBNF sampler, the reference implementation for our grammars.
#pragma once

#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "llama-cpp.h"

namespace eliza::test {

class LlamaGrammar {
public:
    LlamaGrammar(const llama_vocab * vocab, const std::string & gbnf, const std::vector<std::string> & patterns = {},
                 const std::vector<llama_token> & tokens = {})
        : n_vocab_(llama_vocab_n_tokens(vocab)) {
        std::vector<const char *> texts;
        for (const std::string & pattern : patterns) texts.push_back(pattern.c_str());
        const bool lazy = !patterns.empty() || !tokens.empty();
        sampler_.reset(lazy ? llama_sampler_init_grammar_lazy_patterns(vocab, gbnf.c_str(), "root", texts.data(),
                                                                       texts.size(), tokens.data(), tokens.size())
                            : llama_sampler_init_grammar(vocab, gbnf.c_str(), "root"));
        if (sampler_ == nullptr) throw std::runtime_error("llama.cpp rejects the grammar " + gbnf);
    }

    // The allowed tokens, in ascending order.
    std::vector<llama_token> allowed() const {
        std::vector<llama_token_data> data(static_cast<size_t>(n_vocab_));
        for (llama_token id = 0; id < n_vocab_; ++id) data[static_cast<size_t>(id)] = {id, 0.0f, 0.0f};
        llama_token_data_array candidates{data.data(), data.size(), -1, false};
        llama_sampler_apply(sampler_.get(), &candidates);
        std::vector<llama_token> tokens;
        for (const llama_token_data & candidate : data) {
            if (candidate.logit != -INFINITY) tokens.push_back(candidate.id);
        }
        return tokens;
    }
    // The token must be allowed, or the process ends.
    void accept(llama_token token) { llama_sampler_accept(sampler_.get(), token); }

private:
    int32_t n_vocab_;
    llama_sampler_ptr sampler_;
};

}  // namespace eliza::test
