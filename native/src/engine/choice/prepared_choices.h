// Choices that are read and cut into tokens once, for as many spans as are to come.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/model/model.h"
#include "token_trie/trie_cache.h"

namespace eliza {

// The trie of a payload for a model that is called `model_id`, or has no name. Throws Error.
std::shared_ptr<const CachedTrie> trie_of_payload(std::string_view payload, const Model & model,
                                                  const std::string & model_id);

class PreparedChoices {
public:
    // Each text becomes the tokens that the model's tokenizer gives it in the middle of another; on as many threads
    // as there are CPUs. Throws Error that names the text if there are none, one is empty or said before, or no tokens
    // spell it exactly.
    PreparedChoices(const Model & model, const std::vector<std::string> & texts);

    // Those of a payload.
    PreparedChoices(const Model & model, std::shared_ptr<const CachedTrie> trie);

    // The leaves of texts are named by their place, "0", "1", ...
    const std::shared_ptr<const CachedTrie> & trie() const { return trie_; }

    // How many tokens the longest of them has, and its place.
    size_t longest() const { return longest_; }
    size_t longest_choice() const { return longest_choice_; }

    // Of the model whose tokens they are.
    const std::string & model_fingerprint() const { return model_fingerprint_; }

private:
    void note_length(size_t choice, size_t n_tokens);

    std::string model_fingerprint_;
    std::shared_ptr<const CachedTrie> trie_;
    size_t longest_ = 0;
    size_t longest_choice_ = 0;
};

}  // namespace eliza
