#include "engine/choice/prepared_choices.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "engine/base/threads.h"
#include "error.h"
#include "json_input.h"
#include "platform/machine.h"
#include "token_trie/rtkt.h"

namespace eliza {
namespace {

constexpr size_t texts_at_a_time = 256;

// Calls `body(i)` for every i below n on several threads. If calls throw, rethrows the exception of the lowest such i.
template <typename Body>
void for_each_in_parallel(size_t n, const Body & body) {
    std::atomic<size_t> next{0};
    std::mutex mutex;
    std::exception_ptr error;
    size_t failed = n;
    const auto work = [&] {
        for (size_t begin; (begin = next.fetch_add(texts_at_a_time)) < n;) {
            for (size_t i = begin; i < std::min(begin + texts_at_a_time, n); ++i) {
                try {
                    body(i);
                } catch (...) {
                    const std::lock_guard<std::mutex> lock(mutex);
                    if (i < failed) {
                        failed = i;
                        error = std::current_exception();
                    }
                    next = n;  // skip the rest
                    break;
                }
            }
        }
    };
    const size_t n_parts = (n + texts_at_a_time - 1) / texts_at_a_time;
    // Counting the usable CPUs reads several files.
    const size_t n_threads = n_parts < 2 ? n_parts : std::min(n_parts, static_cast<size_t>(usable_cpu_count()));
    const OwnThreads own_threads(static_cast<int32_t>(n_threads));
    std::vector<std::thread> threads;
    threads.reserve(n_threads);  // now, because this function must not throw while a thread runs
    for (size_t i = 1; i < n_threads; ++i) {
        try {
            threads.emplace_back(work);
        } catch (const std::exception &) {  // the system has no more threads
            break;
        }
    }
    work();
    for (std::thread & thread : threads) {
        thread.join();
    }
    if (error) {
        std::rethrow_exception(error);
    }
}

}  // namespace

std::shared_ptr<const CachedTrie> trie_of_payload(std::string_view payload, const Model & model,
                                                  const std::string & model_id) {
    auto trie = TrieCache::shared().get(payload, model.n_vocab());
    // A binary payload names no model.
    if (!model_id.empty() && !is_rtkt(payload) && trie->model_id != model_id) {
        throw invalid_argument("modelId: expected \"" + model_id + "\" (option model_id), got \"" + trie->model_id +
                               "\"");
    }
    return trie;
}

PreparedChoices::PreparedChoices(const Model & model, const std::vector<std::string> & texts)
    : model_fingerprint_(model.fingerprint()), texts_(texts) {
    check_distinct(texts, "choices");
    std::vector<Leaf> leaves(texts.size());
    for_each_in_parallel(texts.size(), [&](size_t i) {
        auto tokens = model.tokens_inside(texts[i]);
        if (!tokens) {
            throw invalid_argument(at("choices", i) + ": the model's tokenizer cannot spell \"" + texts[i] +
                                   "\" exactly");
        }
        leaves[i] = {std::to_string(i), std::move(*tokens)};
    });
    for (size_t i = 0; i < leaves.size(); ++i) {
        note_length(i, leaves[i].tokens.size());
    }
    trie_ = std::make_shared<const CachedTrie>(CachedTrie{"", TokenTrie(leaves)});
}

PreparedChoices::PreparedChoices(const Model & model, std::shared_ptr<const CachedTrie> trie)
    : model_fingerprint_(model.fingerprint()), trie_(std::move(trie)) {
    const TokenTrie & tokens = trie_->trie;
    for (int32_t leaf = 0; leaf < static_cast<int32_t>(tokens.n_leaves()); ++leaf) {
        note_length(static_cast<size_t>(leaf), tokens.path(tokens.leaf_node(leaf)).size());
    }
}

std::shared_ptr<const PreparedChoices> PreparedChoices::led(const Model & model, std::vector<std::string> texts,
                                                            const std::string & lead) {
    for (std::string & text : texts) {
        text.insert(0, lead);
    }
    try {
        return std::make_shared<const PreparedChoices>(model, texts);
    } catch (const Error & error) {
        if (error.status() != ELIZA_ERR_INVALID_ARG) {
            throw;
        }
        return nullptr;
    }
}

void PreparedChoices::check_model(const Model & model) const {
    if (!is_for(model)) {
        throw invalid_argument("the labels were prepared for another model");
    }
}

std::shared_ptr<const PreparedChoices> PreparedChoices::with_lead(const Model & model, const std::string & lead) const {
    if (texts_.empty() || !is_for(model)) {
        return nullptr;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (lead != lead_) {
        led_ = led(model, texts_, lead);
        lead_ = lead;
    }
    return led_;
}

void PreparedChoices::note_length(size_t choice, size_t n_tokens) {
    if (n_tokens > longest_) {
        longest_ = n_tokens;
        longest_choice_ = choice;
    }
}

}  // namespace eliza
