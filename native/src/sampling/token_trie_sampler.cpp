// The token trie as a llama_sampler. See eliza/eliza_token_trie_sampler.h for what it promises.

#include "eliza/eliza_token_trie_sampler.h"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "constraint/token_trie_constraint.h"
#include "eliza/eliza_inference.h"
#include "llama.h"

namespace eliza {
namespace {

struct TokenTrieSampler {
    TokenTrieConstraint constraint;
    int mode;
};

TokenTrieSampler & self(const llama_sampler * sampler) { return *static_cast<TokenTrieSampler *>(sampler->ctx); }

const char * sampler_name(const llama_sampler *) { return "token-trie"; }

void sampler_accept(llama_sampler * sampler, llama_token token) { self(sampler).constraint.accept(token); }

void sampler_apply(llama_sampler * sampler, llama_token_data_array * candidates) {
    const auto & [constraint, mode] = self(sampler);
    if (!constraint.active() || constraint.may_end()) {
        return;
    }
    const TokenSpan allowed = constraint.allowed();
    int64_t best = -1;
    for (size_t i = 0; i < candidates->size; ++i) {
        llama_token_data & candidate = candidates->data[i];
        if (!std::binary_search(allowed.begin(), allowed.end(), candidate.id)) {
            candidate.logit = -INFINITY;
        } else if (best < 0 || candidate.logit > candidates->data[best].logit) {
            best = static_cast<int64_t>(i);
        }
    }
    candidates->sorted = false;
    if (mode == ELIZA_TRIE_ARGMAX && best >= 0) {
        std::swap(candidates->data[0], candidates->data[best]);
        candidates->size = 1;
        candidates->selected = 0;
        candidates->sorted = true;
    }
}

void sampler_reset(llama_sampler * sampler) { self(sampler).constraint.reset(); }

void sampler_free(llama_sampler * sampler) { delete &self(sampler); }

llama_sampler * sampler_clone(const llama_sampler * sampler);

llama_sampler_i make_interface() {
    llama_sampler_i interface{};  // the backend sampling callbacks stay NULL: this one runs on the CPU
    interface.name = sampler_name;
    interface.accept = sampler_accept;
    interface.apply = sampler_apply;
    interface.reset = sampler_reset;
    interface.clone = sampler_clone;
    interface.free = sampler_free;
    return interface;
}

llama_sampler_i token_trie_interface = make_interface();

llama_sampler * sampler_clone(const llama_sampler * sampler) {
    return llama_sampler_init(&token_trie_interface, new TokenTrieSampler(self(sampler)));
}

}  // namespace
}  // namespace eliza

llama_sampler * llama_sampler_init_token_trie(const llama_vocab * vocab, const char * trie_descriptor_json, int mode) {
    using namespace eliza;
    if (trie_descriptor_json == nullptr || (mode != ELIZA_TRIE_ARGMAX && mode != ELIZA_TRIE_SAMPLE)) {
        return nullptr;
    }
    try {
        const int32_t n_vocab = vocab != nullptr ? llama_vocab_n_tokens(vocab) : 0;
        auto trie = TrieCache::shared().get(trie_descriptor_json, n_vocab);
        return llama_sampler_init(&token_trie_interface,
                                  new TokenTrieSampler{TokenTrieConstraint(std::move(trie)), mode});
    } catch (const std::exception &) {
        return nullptr;
    }
}
