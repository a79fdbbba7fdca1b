#include "sampling/sampler_chain.h"

#include <cmath>
#include <new>
#include <string>

namespace eliza {
namespace {

constexpr int32_t penalty_last_n = 64;
constexpr size_t min_keep = 1;
constexpr float least_temperature = 1e-6f;  // below, logits / temperature would overflow

void require_finite(const llama_token_data_array & candidates) {
    for (size_t i = 0; i < candidates.size; ++i) {
        if (std::isfinite(candidates.data[i].logit)) {
            return;
        }
    }
    throw no_finite_logit();
}

// The token <think> of reasoning models; LLAMA_TOKEN_NULL where the vocabulary has no such token.
llama_token think_token(const llama_vocab * vocab) {
    const std::string text = "<think>";
    llama_token token = LLAMA_TOKEN_NULL;
    const int32_t n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), &token, 1,
                                     /*add_special=*/false, /*parse_special=*/true);
    return n == 1 ? token : LLAMA_TOKEN_NULL;
}

bool between_0_and_1(float value) { return value > 0.0f && value < 1.0f; }

}  // namespace

llama_token_data_array & Candidates::fill(const float * logits, int32_t n_vocab) {
    data_.resize(static_cast<size_t>(n_vocab));
    for (int32_t id = 0; id < n_vocab; ++id) {
        data_[static_cast<size_t>(id)] = {id, logits[id], 0.0f};
    }
    array_ = {data_.data(), data_.size(), -1, false};
    return array_;
}

llama_token_data_array & Candidates::fill(const float * logits, const llama_token * tokens, size_t k) {
    data_.resize(k);
    for (size_t i = 0; i < k; ++i) {
        data_[i] = {tokens[i], logits[i], 0.0f};
    }
    array_ = {data_.data(), data_.size(), -1, false};
    return array_;
}

llama_token_data_array & Candidates::fill_from(const float * logits, const llama_token * tokens, size_t k) {
    data_.resize(k);
    for (size_t i = 0; i < k; ++i) {
        data_[i] = {tokens[i], logits[tokens[i]], 0.0f};
    }
    array_ = {data_.data(), data_.size(), -1, false};
    return array_;
}

SamplerChain::SamplerChain(const llama_vocab * vocab, const SamplingParams & params)
    : chain_(llama_sampler_chain_init(llama_sampler_chain_default_params())),
      greedy_(params.temperature < least_temperature) {
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    if (params.disable_thinking) {
        if (const llama_token token = think_token(vocab); token != LLAMA_TOKEN_NULL) {
            const llama_logit_bias never{token, -INFINITY};
            add(llama_sampler_init_logit_bias(n_vocab, 1, &never));
        }
    }
    if (params.repeat_penalty > 0.0f && params.repeat_penalty != 1.0f) {
        add(llama_sampler_init_penalties(n_vocab, penalty_last_n, params.repeat_penalty, 0.0f, 0.0f));
    }
    n_logit_samplers_ = llama_sampler_chain_n(chain_.get());

    if (greedy_) {
        add(llama_sampler_init_greedy());
        return;
    }
    if (params.top_k > 0) {
        add(llama_sampler_init_top_k(params.top_k));
    }
    if (between_0_and_1(params.typical_p)) {
        add(llama_sampler_init_typical(params.typical_p, min_keep));
    }
    if (between_0_and_1(params.top_p)) {
        add(llama_sampler_init_top_p(params.top_p, min_keep));
    }
    if (params.min_p > 0.0f) {
        add(llama_sampler_init_min_p(params.min_p, min_keep));
    }
    add(llama_sampler_init_temp(params.temperature));
    add(llama_sampler_init_dist(params.seed));
}

void SamplerChain::add(llama_sampler * sampler) {
    if (sampler == nullptr) {
        throw std::bad_alloc();
    }
    llama_sampler_chain_add(chain_.get(), sampler);
}

llama_token SamplerChain::sample(llama_token_data_array & candidates) {
    require_finite(candidates);
    llama_sampler_apply(chain_.get(), &candidates);
    return candidates.data[candidates.selected].id;
}

llama_token SamplerChain::argmax(llama_token_data_array & candidates) {
    for (int32_t i = 0; i < n_logit_samplers_; ++i) {
        llama_sampler_apply(llama_sampler_chain_get(chain_.get(), i), &candidates);
    }
    require_finite(candidates);
    size_t best = 0;
    for (size_t i = 1; i < candidates.size; ++i) {
        if (candidates.data[i].logit > candidates.data[best].logit) {
            best = i;
        }
    }
    return candidates.data[best].id;
}

int32_t argmax(const float * logits, int32_t n) {
    int32_t best = -1;
    float best_logit = -INFINITY;
    for (int32_t i = 0; i < n; ++i) {
        if (logits[i] > best_logit) {
            best_logit = logits[i];
            best = i;
        }
    }
    if (best < 0) {
        throw no_finite_logit();
    }
    return best;
}

}  // namespace eliza
