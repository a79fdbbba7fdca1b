#include "sampling/sampler_chain.h"
#include "sampling/gumbel.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <random>
#include <string_view>
#include <utility>

#include "eliza/eliza_gumbel_sampler.h"

namespace eliza {
namespace {

constexpr size_t min_keep = 1;
constexpr int32_t mirostat_m = 100;         // number of tokens from which mirostat 1 estimates the distribution
constexpr float least_temperature = 1e-6f;  // below this, logits / temperature would overflow

void require_finite(const llama_token_data_array & candidates) {
    for (size_t i = 0; i < candidates.size; ++i) {
        if (std::isfinite(candidates.data[i].logit)) {
            return;
        }
    }
    throw no_finite_logit();
}

void require_any_left(const llama_token_data_array & candidates) {
    for (size_t i = 0; i < candidates.size; ++i) {
        if (candidates.data[i].logit > -INFINITY) {
            return;
        }
    }
    throw invalid_argument("no token is left to choose from: logit_bias bans every allowed token");
}

// Removes candidates that llama.cpp has excluded by setting their logit to -infinity. Its typical sampler would compute
// 0 * log(0) for them, and XTC would count them as kept.
void drop_left_out(llama_token_data_array & candidates) {
    llama_token_data * end = std::remove_if(candidates.data, candidates.data + candidates.size,
                                            [](const llama_token_data & each) { return each.logit == -INFINITY; });
    candidates.size = static_cast<size_t>(end - candidates.data);
}

// Returns the token <think> of reasoning models, or LLAMA_TOKEN_NULL if the vocabulary does not have it.
llama_token think_token(const llama_vocab * vocab) {
    const std::string text = "<think>";
    llama_token token = LLAMA_TOKEN_NULL;
    const int32_t n = llama_tokenize(vocab, text.data(), static_cast<int32_t>(text.size()), &token, 1,
                                     /*add_special=*/false, /*parse_special=*/true);
    return n == 1 ? token : LLAMA_TOKEN_NULL;
}

bool between_0_and_1(float value) { return value > 0.0f && value < 1.0f; }

uint32_t drawn_seed(uint32_t seed) { return seed != LLAMA_DEFAULT_SEED ? seed : std::random_device()(); }

}  // namespace

template <typename CandidateAt>
llama_token_data_array & Candidates::fill_with(size_t n, const CandidateAt & candidate_at) {
    data_.resize(n);
    LogitCheck check;
    for (size_t i = 0; i < n; ++i) {
        data_[i] = candidate_at(i);
        check.look_at(data_[i].logit);
    }
    check.finish();
    return filled(false);
}

llama_token_data_array & Candidates::filled(bool sorted) {
    array_ = {data_.data(), data_.size(), -1, sorted};
    return array_;
}

llama_token_data_array & Candidates::fill(const float * logits, int32_t n_vocab) {
    return fill_with(static_cast<size_t>(n_vocab),
                     [&](size_t i) { return llama_token_data{static_cast<llama_token>(i), logits[i], 0.0f}; });
}

llama_token_data_array & Candidates::fill(const float * logits, const llama_token * tokens, size_t k) {
    return fill_with(k, [&](size_t i) { return llama_token_data{tokens[i], logits[i], 0.0f}; });
}

llama_token_data_array & Candidates::fill_from(const float * logits, const llama_token * tokens, size_t k) {
    return fill_with(k, [&](size_t i) { return llama_token_data{tokens[i], logits[tokens[i]], 0.0f}; });
}

llama_token_data_array & Candidates::fill_top(const float * logits, int32_t n_vocab, size_t k) {
    // A heap of the best candidates so far, with the worst of them in front. Most blocks contain no better one.
    constexpr int32_t block = 64;
    const auto better = [](const llama_token_data & a, const llama_token_data & b) { return a.logit > b.logit; };
    data_.clear();
    int32_t id = 0;
    for (; id < n_vocab && data_.size() < k; ++id) {
        data_.push_back({id, logits[id], 0.0f});
    }
    LogitCheck check;
    for (const llama_token_data & each : data_) {
        check.look_at(each.logit);
    }
    check.finish();
    std::make_heap(data_.begin(), data_.end(), better);
    for (; id < n_vocab; id += block) {
        const int32_t end = std::min(id + block, n_vocab);
        const float least = data_.front().logit;
        int above = 0;
        for (int32_t i = id; i < end; ++i) {
            above |= logits[i] > least ? 1 : 0;
            check.look_at(logits[i]);
        }
        for (int32_t i = id; above != 0 && i < end; ++i) {
            if (logits[i] > data_.front().logit) {
                std::pop_heap(data_.begin(), data_.end(), better);
                data_.back() = {i, logits[i], 0.0f};
                std::push_heap(data_.begin(), data_.end(), better);
            }
        }
    }
    check.finish();
    std::sort_heap(data_.begin(), data_.end(), better);
    return filled(true);
}

SamplerChain::SamplerChain(const llama_vocab * vocab, const SamplingParams & params, const SamplerChain * before)
    : chain_(llama_sampler_chain_init(llama_sampler_chain_default_params())),
      greedy_(params.temperature < least_temperature),
      before_(before),
      seed_(params.seed) {
    check_together(params);
    const int32_t n_vocab = llama_vocab_n_tokens(vocab);
    std::vector<llama_logit_bias> biases = params.logit_bias;
    for (const llama_logit_bias & bias : biases) {
        if (bias.token >= n_vocab) {
            throw invalid_argument("logit_bias: token " + std::to_string(bias.token) +
                                   " is outside the vocabulary of " + std::to_string(n_vocab));
        }
    }
    if (params.disable_thinking) {
        if (const llama_token token = think_token(vocab); token != LLAMA_TOKEN_NULL) {
            biases.push_back({token, -INFINITY});
        }
    }
    if (!biases.empty()) {
        logit_samplers_.push_back(0);
        add(llama_sampler_init_logit_bias(n_vocab, static_cast<int32_t>(biases.size()), biases.data()), "logit_bias");
    }
    for (const SamplerKind kind : params.order) {
        add_in_order(vocab, params, kind);
    }
    add_selection(vocab, params);
    n_candidates_ = count_candidates(params);
    if (n_candidates_ * 8 > static_cast<size_t>(n_vocab)) {
        n_candidates_ = 0;
    }
    before_ = nullptr;
}

size_t SamplerChain::count_candidates(const SamplingParams & params) const {
    // Penalties that can only lower a logit push at most repeat_last_n tokens out of the top.
    const bool penalized = !logit_samplers_.empty() && names_[0] == sampler_name(SamplerKind::penalties);
    const bool only_lowers =
        params.repeat_penalty >= 1.0f && params.frequency_penalty >= 0.0f && params.presence_penalty >= 0.0f;
    const size_t first = penalized && only_lowers ? 1 : 0;
    if (logit_samplers_.size() > first || names_[first] != sampler_name(SamplerKind::top_k)) {
        return 0;
    }
    return static_cast<size_t>(params.top_k) + (first == 1 ? static_cast<size_t>(params.repeat_last_n) : 0);
}

// Samplers that are off are not added, to keep the chain short.
void SamplerChain::add_in_order(const llama_vocab * vocab, const SamplingParams & params, SamplerKind kind) {
    const char * name = sampler_name(kind);
    if (kind == SamplerKind::penalties) {
        // llama.cpp divides by the penalty. 0 means off, as in elizaOS's configuration.
        const float repeat = params.repeat_penalty > 0.0f ? params.repeat_penalty : 1.0f;
        if (params.repeat_last_n > 0 &&
            (repeat != 1.0f || params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f)) {
            logit_samplers_.push_back(llama_sampler_chain_n(chain_.get()));
            add(llama_sampler_init_penalties(llama_vocab_n_tokens(vocab), params.repeat_last_n, repeat,
                                             params.frequency_penalty, params.presence_penalty),
                name);
        }
        return;
    }
    if (kind == SamplerKind::dry) {
        if (params.dry_multiplier > 0.0f && params.dry_penalty_last_n > 0) {
            std::vector<const char *> breakers;
            for (const std::string & breaker : params.dry_sequence_breakers) {
                breakers.push_back(breaker.c_str());
            }
            logit_samplers_.push_back(llama_sampler_chain_n(chain_.get()));
            add(llama_sampler_init_dry(vocab, params.dry_multiplier, params.dry_base, params.dry_allowed_length,
                                       params.dry_penalty_last_n, breakers.data(), breakers.size()),
                name);
        }
        return;
    }
    // The samplers below shape a distribution. Greedy selection does not use one, and mirostat replaces them.
    if (greedy_ || (params.mirostat != 0 && kind != SamplerKind::temperature)) {
        return;
    }
    switch (kind) {
        case SamplerKind::top_n_sigma:
            if (params.top_n_sigma > 0.0f) {
                add_shaping(llama_sampler_init_top_n_sigma(params.top_n_sigma), name);
            }
            break;
        case SamplerKind::top_k:
            if (params.top_k > 0) {
                add_shaping(llama_sampler_init_top_k(params.top_k), name);
            }
            break;
        case SamplerKind::typ_p:
            if (between_0_and_1(params.typical_p)) {
                typical_ = llama_sampler_chain_n(chain_.get());
                add_shaping(llama_sampler_init_typical(params.typical_p, min_keep), name);
            }
            break;
        case SamplerKind::top_p:
            if (between_0_and_1(params.top_p)) {
                add_shaping(llama_sampler_init_top_p(params.top_p, min_keep), name);
            }
            break;
        case SamplerKind::min_p:
            if (params.min_p > 0.0f) {
                add_shaping(llama_sampler_init_min_p(params.min_p, min_keep), name);
            }
            break;
        case SamplerKind::xtc:
            if (params.xtc_probability > 0.0f && params.xtc_threshold <= 0.5f) {
                xtc_ = llama_sampler_chain_n(chain_.get());
                add_drawing(name, {params.xtc_probability, params.xtc_threshold}, true, [&](uint32_t seed) {
                    return llama_sampler_init_xtc(params.xtc_probability, params.xtc_threshold, min_keep, seed);
                });
            }
            break;
        case SamplerKind::temperature:
            if (params.dynatemp_range > 0.0f && params.mirostat == 0) {
                add_shaping(
                    llama_sampler_init_temp_ext(params.temperature, params.dynatemp_range, params.dynatemp_exponent),
                    name);
            } else if (params.temperature != 1.0f) {
                add(llama_sampler_init_temp(params.temperature), name);
            }
            break;
        case SamplerKind::infill:
            infill_ = llama_sampler_chain_n(chain_.get());
            add_shaping(llama_sampler_init_infill(vocab), name);
            break;
        case SamplerKind::adaptive_p: break;  // selects the token: see add_selection()
        case SamplerKind::penalties:
        case SamplerKind::dry: break;  // handled above: they change single logits
    }
}

void SamplerChain::add_selection(const llama_vocab * vocab, const SamplingParams & params) {
    const bool adaptive =
        std::find(params.order.begin(), params.order.end(), SamplerKind::adaptive_p) != params.order.end() &&
        params.adaptive_target >= 0.0f;
    if (greedy_) {
        add(llama_sampler_init_greedy(), "greedy");
    } else if (params.mirostat == 1) {
        add_drawing("mirostat", {params.mirostat_tau, params.mirostat_eta}, true, [&](uint32_t seed) {
            return llama_sampler_init_mirostat(llama_vocab_n_tokens(vocab), seed, params.mirostat_tau,
                                               params.mirostat_eta, mirostat_m);
        });
    } else if (params.mirostat == 2) {
        add_drawing("mirostat_v2", {params.mirostat_tau, params.mirostat_eta}, true, [&](uint32_t seed) {
            return llama_sampler_init_mirostat_v2(seed, params.mirostat_tau, params.mirostat_eta);
        });
    } else if (adaptive) {
        add_drawing("adaptive_p", {params.adaptive_target, params.adaptive_decay}, true, [&](uint32_t seed) {
            return llama_sampler_init_adaptive_p(params.adaptive_target, params.adaptive_decay, seed);
        });
    } else if (params.draw == Draw::gumbel) {
        add_drawing("gumbel", {}, false, [](uint32_t seed) { return new_gumbel_sampler(drawn_seed(seed)); });
    } else {
        add_drawing("dist", {}, false, [](uint32_t seed) { return llama_sampler_init_dist(seed); });
    }
}

void SamplerChain::add_drawing(const char * name, std::vector<float> settings, bool is_shaping,
                               const std::function<llama_sampler *(uint32_t seed)> & make) {
    Drawing drawing{name, std::move(settings), llama_sampler_chain_n(chain_.get()), 0, -1};
    if (before_ != nullptr && before_->seed_ == seed_) {
        for (const Drawing & other : before_->drawing_) {
            if (std::string_view(other.name) == name) {
                drawing.n_begun = other.n_begun;
                drawing.place_before = other.settings == drawing.settings ? other.place : -1;
            }
        }
    }
    // Create the sampler even if take_from() will replace it, so that this chain is complete without the old one.
    llama_sampler * sampler = make(nth_seed(seed_, drawing.n_begun));
    drawing.n_begun += drawing.place_before < 0 ? 1 : 0;
    drawing_.push_back(std::move(drawing));
    if (is_shaping) {
        add_shaping(sampler, name);
    } else {
        add(sampler, name);
    }
}

void SamplerChain::take_from(SamplerChain & before) {
    // llama.cpp can append samplers to a chain and remove them from anywhere, but copies of samplers lose the state of
    // their random generator.
    const auto all_of = [](SamplerChain & chain) {
        std::vector<llama_sampler_ptr> samplers;
        while (llama_sampler_chain_n(chain.chain_.get()) > 0) {
            samplers.emplace_back(llama_sampler_chain_remove(chain.chain_.get(), 0));
        }
        return samplers;
    };
    std::vector<llama_sampler_ptr> samplers = all_of(*this), others = all_of(before);
    for (const Drawing & each : drawing_) {
        if (each.place_before >= 0) {
            samplers[static_cast<size_t>(each.place)] = std::move(others[static_cast<size_t>(each.place_before)]);
        }
    }
    for (llama_sampler_ptr & sampler : samplers) {
        llama_sampler_chain_add(chain_.get(), sampler.release());
    }
}

void SamplerChain::catch_up(llama_token token) {
    for (int32_t i = 0; i < llama_sampler_chain_n(chain_.get()); ++i) {
        const bool is_known = std::any_of(drawing_.begin(), drawing_.end(), [&](const Drawing & each) {
            return each.place == i && each.place_before >= 0;
        });
        if (!is_known) {
            llama_sampler_accept(llama_sampler_chain_get(chain_.get(), i), token);
        }
    }
}

void SamplerChain::add_shaping(llama_sampler * sampler, const char * name) {
    add(sampler, name);
    reshapes_ = true;
}

void SamplerChain::add(llama_sampler * sampler, const char * name) {
    if (sampler == nullptr) {
        throw std::bad_alloc();
    }
    llama_sampler_chain_add(chain_.get(), sampler);
    names_.push_back(name);
}

std::string SamplerChain::describe() const {
    std::string text;
    for (const char * name : names_) {
        text += (text.empty() ? "" : ";") + std::string(name);
    }
    return text;
}

llama_token SamplerChain::sample(llama_token_data_array & candidates, bool in_span) {
    require_finite(candidates);
    const int32_t n_samplers = llama_sampler_chain_n(chain_.get());
    for (int32_t i = 0; i < n_samplers; ++i) {
        const bool counts_left_out = i == typical_ || i == xtc_;
        if (counts_left_out) {
            drop_left_out(candidates);
        }
        if (counts_left_out || i == n_samplers - 1) {
            require_any_left(candidates);
        }
        if (!in_span || i != infill_) {
            llama_sampler_apply(llama_sampler_chain_get(chain_.get(), i), &candidates);
        }
    }
    return candidates.data[candidates.selected].id;
}

llama_token SamplerChain::argmax(llama_token_data_array & candidates) {
    require_finite(candidates);
    for (const int32_t i : logit_samplers_) {
        llama_sampler_apply(llama_sampler_chain_get(chain_.get(), i), &candidates);
    }
    require_any_left(candidates);
    size_t best = 0;
    for (size_t i = 1; i < candidates.size; ++i) {
        if (candidates.data[i].logit > candidates.data[best].logit) {
            best = i;
        }
    }
    return candidates.data[best].id;
}

uint32_t nth_seed(uint32_t seed, uint32_t n) {
    if (seed == LLAMA_DEFAULT_SEED || n == 0) {
        return seed;
    }
    const uint32_t mixed = seed ^ (n * 0x9e3779b9u);
    return mixed != LLAMA_DEFAULT_SEED ? mixed : 0;
}

// Finds the first block with the largest logit, and then the logit in it. A compiler can vectorize the maximum of a
// block, but not a search for its place.
int32_t argmax(const float * logits, int32_t n) {
    constexpr int32_t block = 256, n_lanes = 16;
    float best = -INFINITY;
    int32_t begin_of_best = n;
    LogitCheck check;
    for (int32_t begin = 0; begin < n; begin += block) {
        const int32_t end = std::min(n, begin + block);
        float lanes[n_lanes];
        std::fill(lanes, lanes + n_lanes, -INFINITY);
        int32_t i = begin;
        for (; i + n_lanes <= end; i += n_lanes) {
            for (int32_t lane = 0; lane < n_lanes; ++lane) {
                const float logit = logits[i + lane];
                lanes[lane] = logit > lanes[lane] ? logit : lanes[lane];
            }
        }
        for (; i < end; ++i) {
            lanes[0] = std::max(lanes[0], logits[i]);
        }
        for (i = begin; i < end; ++i) {
            check.look_at(logits[i]);
        }
        const float best_of_block = *std::max_element(lanes, lanes + n_lanes);
        if (best_of_block > best) {
            best = best_of_block;
            begin_of_best = begin;
        }
    }
    check.finish();
    if (begin_of_best == n) {
        throw no_finite_logit();
    }
    return static_cast<int32_t>(std::find(logits + begin_of_best, logits + n, best) - logits);
}

}  // namespace eliza
