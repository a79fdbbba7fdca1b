// The token trie as a llama_sampler; documented in eliza/eliza_token_trie_sampler.h.

#include "sampling/token_trie_sampler.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "constraint/token_trie_constraint.h"
#include "eliza/eliza_inference.h"
#include "llama.h"
#include "sampling/device_mask.h"
#include "sampling/device_tensors.h"

namespace eliza {
namespace {

struct TokenTrieSampler {
    TokenTrieConstraint constraint;
    int mode;
    DeviceMask device_mask;

    TokenTrieSampler(TokenTrieConstraint at_root, int trie_mode, int32_t n_vocab)
        : constraint(std::move(at_root)),
          mode(trie_mode),
          device_mask(n_vocab, most_children(constraint.trie()), trie_mode == ELIZA_TRIE_ARGMAX) {}

    // Returns the allowed next tokens, or an empty span if all are.
    TokenSpan masked_to() const {
        return constraint.active() && !constraint.may_end() ? constraint.allowed() : TokenSpan{};
    }

    static uint32_t most_children(const TokenTrie & trie) {
        uint32_t most = 1;
        for (TokenTrie::Node node = 0; node < trie.n_nodes(); ++node) {
            most = std::max(most, trie.children(node).size);
        }
        return most;
    }
};

TokenTrieSampler & self(const llama_sampler * sampler) { return *static_cast<TokenTrieSampler *>(sampler->ctx); }

const char * sampler_name(const llama_sampler *) { return "token-trie"; }

void sampler_accept(llama_sampler * sampler, llama_token token) { self(sampler).constraint.accept(token); }

// Sets the logits of all tokens that are not allowed to -infinity. Returns the index of the most probable allowed one,
// or -1.
int64_t mask(TokenSpan allowed, llama_token_data_array & candidates) {
    const auto in_its_place = [&](Token token) {
        return static_cast<size_t>(token) < candidates.size && candidates.data[token].id == token;
    };
    int64_t best = -1;
    const auto consider = [&](int64_t i) {
        if (best < 0 || candidates.data[i].logit > candidates.data[best].logit) {
            best = i;
        }
    };
    if (std::all_of(allowed.begin(), allowed.end(), in_its_place)) {
        // llama.cpp passes the candidates sorted by id. Then each candidate is at the index of its id.
        std::vector<float> kept;
        kept.reserve(allowed.size);
        for (const Token token : allowed) {
            kept.push_back(candidates.data[token].logit);
        }
        for (size_t i = 0; i < candidates.size; ++i) {
            candidates.data[i].logit = -INFINITY;
        }
        for (uint32_t i = 0; i < allowed.size; ++i) {
            candidates.data[allowed[i]].logit = kept[i];
            consider(allowed[i]);
        }
        return best;
    }
    for (size_t i = 0; i < candidates.size; ++i) {
        if (std::binary_search(allowed.begin(), allowed.end(), candidates.data[i].id)) {
            consider(static_cast<int64_t>(i));
        } else {
            candidates.data[i].logit = -INFINITY;
        }
    }
    return best;
}

void sampler_apply(llama_sampler * sampler, llama_token_data_array * candidates) {
    const TokenSpan allowed = self(sampler).masked_to();
    if (allowed.empty()) {
        return;
    }
    const int64_t best = mask(allowed, *candidates);
    candidates->sorted = false;
    if (self(sampler).mode == ELIZA_TRIE_ARGMAX && best >= 0) {
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
    llama_sampler_i interface{};
    interface.name = sampler_name;
    interface.accept = sampler_accept;
    interface.apply = sampler_apply;
    interface.reset = sampler_reset;
    interface.clone = sampler_clone;
    interface.free = sampler_free;
    interface.backend_init = [](llama_sampler * sampler, ggml_backend_buffer_type_t where, uint32_t n_outputs) {
        // Several outputs of one sequence would be at different positions of the trie, but there is only one mask.
        return n_outputs == 1 && self(sampler).device_mask.can_be_added() && device_supports(sampler, where);
    };
    interface.backend_apply = [](llama_sampler * sampler, ggml_context * context, ggml_cgraph *,
                                 llama_sampler_data * data) { self(sampler).device_mask.add(context, *data); };
    interface.backend_set_input = [](llama_sampler * sampler) {
        self(sampler).device_mask.set(self(sampler).masked_to());
    };
    interface.backend_reset = [](llama_sampler * sampler) { self(sampler).device_mask.forget_graph(); };
    interface.copy_state = [](const llama_sampler * from, llama_sampler * to) {
        self(to).constraint = self(from).constraint;
    };
    return interface;
}

llama_sampler_i token_trie_interface = make_interface();

llama_sampler * sampler_clone(const llama_sampler * sampler) {
    return llama_sampler_init(&token_trie_interface, new TokenTrieSampler(self(sampler)));
}

}  // namespace

llama_sampler * new_token_trie_sampler(std::shared_ptr<const CachedTrie> trie, int mode, int32_t n_vocab) {
    return llama_sampler_init(
        &token_trie_interface,
        new TokenTrieSampler(TokenTrieConstraint(std::move(trie), Constraint::default_span_limit), mode, n_vocab));
}

}  // namespace eliza
