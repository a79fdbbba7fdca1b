// A vocabulary as grammars see it. llama.cpp's describe control tokens by their texts like any other; where a grammar
// tells a value, they are none.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "byte_trie/masks.h"
#include "llama.h"

namespace eliza {

class GrammarVocabulary {
public:
    // `texts` has those of all tokens but control and end tokens; `ends` are the tokens that end a generation,
    // ascending.
    GrammarVocabulary(const llama_vocab * vocab, std::shared_ptr<const Vocabulary> texts, std::vector<llama_token> ends,
                      bool with_controls);

    const llama_vocab * vocab() const { return vocab_; }
    size_t n_vocab() const { return texts_->all().n_vocab(); }
    const ByteTrie & texts() const { return texts_->all(); }
    const ByteTrie * controls() const { return controls_.get(); }  // nullptr: they are no text
    const std::vector<llama_token> & ends() const { return ends_; }
    bool is_end(llama_token token) const;

    // "" for what no text stands for.
    std::string_view text(llama_token token) const {
        const std::string_view text = texts().text(token);
        return text.empty() && controls_ != nullptr ? controls_->text(token) : text;
    }

private:
    const llama_vocab * vocab_;
    std::shared_ptr<const Vocabulary> texts_;
    std::vector<llama_token> ends_;
    std::unique_ptr<const ByteTrie> controls_;
};

}  // namespace eliza
