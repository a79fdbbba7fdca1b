// A vocabulary as seen by grammars. A grammar of llama.cpp can match control tokens by their names like other text. A
// grammar that describes a value cannot match them.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "byte_trie/masks.h"
#include "grammar/automaton_pool.h"
#include "llama.h"

namespace eliza {

class GrammarVocabulary {
public:
    // `texts` is the trie of all tokens except control and end tokens. `ends` are the tokens that end a generation,
    // in ascending order.
    GrammarVocabulary(const llama_vocab * vocab, std::shared_ptr<const Vocabulary> texts, std::vector<llama_token> ends,
                      bool with_controls);

    const llama_vocab * vocab() const { return vocab_; }
    size_t n_vocab() const { return texts_->all().n_vocab(); }
    const ByteTrie & texts() const { return texts_->all(); }
    const ByteTrie * controls() const { return controls_.get(); }  // nullptr if control tokens do not match text
    const std::vector<llama_token> & ends() const { return ends_; }
    bool is_end(llama_token token) const;

    // The automata of grammars over this vocabulary that are not in use.
    AutomatonPool & automata() const { return automata_; }

    // Returns "" for a token without text.
    std::string_view text(llama_token token) const {
        const std::string_view text = texts().text(token);
        return text.empty() && controls_ != nullptr ? controls_->text(token) : text;
    }

private:
    const llama_vocab * vocab_;
    std::shared_ptr<const Vocabulary> texts_;
    std::vector<llama_token> ends_;
    std::unique_ptr<const ByteTrie> controls_;
    mutable AutomatonPool automata_;
};

}  // namespace eliza
