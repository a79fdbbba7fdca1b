// Labels that are parsed and tokenized once, for any number of spans.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model.h"
#include "token_trie/trie_cache.h"

namespace eliza {

// Returns the trie of a payload. If `model_id` is not empty, a JSON payload must name the same model. Throws an Error.
std::shared_ptr<const CachedTrie> trie_of_payload(std::string_view payload, const Model & model,
                                                  const std::string & model_id);

class PreparedChoices {
public:
    // Tokenizes each label as if other text preceded it. Uses at most one thread for each CPU. Throws an Error if the
    // list is empty, a label is empty or repeated, or no tokens spell a label exactly. The Error names the label.
    PreparedChoices(const Model & model, const std::vector<std::string> & texts);

    // Uses the leaves of a payload as labels.
    PreparedChoices(const Model & model, std::shared_ptr<const CachedTrie> trie);

    // Returns labels with `lead` before each, such as a space. Returns nullptr if the tokenizer cannot spell one of
    // them, or the list is not one of distinct labels.
    static std::shared_ptr<const PreparedChoices> led(const Model & model, std::vector<std::string> texts,
                                                      const std::string & lead);

    // Returns the same labels with `lead` before each. The last result is kept. Returns nullptr also if the labels were
    // not made from strings for this model.
    std::shared_ptr<const PreparedChoices> with_lead(const Model & model, const std::string & lead) const;

    // The trie. Leaves made from strings are named by their index, "0", "1", ...
    const std::shared_ptr<const CachedTrie> & trie() const { return trie_; }

    // The number of tokens of the longest label, and the index of that label.
    size_t longest() const { return longest_; }
    size_t longest_choice() const { return longest_choice_; }

    // Throws an Error unless the labels consist of tokens of this model.
    void check_model(const Model & model) const;

private:
    bool is_for(const Model & model) const { return model.fingerprint() == model_fingerprint_; }
    void note_length(size_t choice, size_t n_tokens);

    std::string model_fingerprint_;
    std::vector<std::string> texts_;  // empty if the labels are the leaves of a payload
    std::shared_ptr<const CachedTrie> trie_;
    size_t longest_ = 0;
    size_t longest_choice_ = 0;

    mutable std::mutex mutex_;  // guards the following
    mutable std::string lead_;
    mutable std::shared_ptr<const PreparedChoices> led_;
};

}  // namespace eliza
