#include "grammar/llama_grammar.h"

#include <cmath>
#include <exception>
#include <utility>
#include <vector>

#include "error.h"
#include "grammar/gbnf.h"
#include "log.h"

namespace eliza {

LlamaGrammar::LlamaGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string & gbnf)
    : vocabulary_(std::move(vocabulary)) {
    parse_gbnf(vocabulary_->vocab(), vocabulary_->n_vocab(), gbnf, "root");  // for its clear error messages
    const LlamaErrorCapture capture;
    sampler_.reset(llama_sampler_init_grammar(vocabulary_->vocab(), gbnf.c_str(), "root"));
    if (sampler_ == nullptr) {
        throw capture.error(ELIZA_ERR_INVALID_ARG, "gbnf_grammar cannot be used");
    }
}

bool LlamaGrammar::allows(llama_token token) {
    llama_token_data one{token, 0.0f, 0.0f};
    llama_token_data_array candidates{&one, 1, -1, false};
    llama_sampler_apply(sampler_.get(), &candidates);
    return one.logit != -INFINITY;
}

SharedMask LlamaGrammar::mask() {
    std::vector<llama_token_data> data(vocabulary_->n_vocab());
    for (size_t i = 0; i < data.size(); ++i) {
        data[i] = {static_cast<llama_token>(i), 0.0f, 0.0f};
    }
    llama_token_data_array candidates{data.data(), data.size(), -1, false};
    llama_sampler_apply(sampler_.get(), &candidates);
    TokenSet legal(data.size());
    for (const llama_token_data & candidate : data) {
        if (candidate.logit != -INFINITY) {
            legal.add(static_cast<size_t>(candidate.id));
        }
    }
    return std::make_shared<const TokenMask>(std::move(legal));
}

// llama.cpp's sampler throws or aborts the process when it accepts a token that it does not allow, so check first.
void LlamaGrammar::accept(llama_token token) {
    in_step_ = in_step_ && allows(token);
    if (in_step_) {
        try {
            llama_sampler_accept(sampler_.get(), token);
        } catch (const std::bad_alloc &) {
            in_step_ = false;  // its state is incomplete
            throw;
        } catch (const std::exception &) {
            in_step_ = false;
        }
    }
}

void LlamaGrammar::reset() {
    llama_sampler_reset(sampler_.get());
    in_step_ = true;
}

}  // namespace eliza
