#include "grammar/grammar_vocabulary.h"

#include <algorithm>
#include <string>
#include <utility>

#include "token_piece.h"

namespace eliza {
namespace {

std::unique_ptr<const ByteTrie> trie_of_controls(const GrammarVocabulary & vocabulary) {
    std::vector<std::string> controls(vocabulary.n_vocab());
    for (llama_token token = 0; token < static_cast<llama_token>(controls.size()); ++token) {
        if (vocabulary.texts().text(token).empty() && !vocabulary.is_end(token)) {
            std::string text = token_piece(vocabulary.vocab(), token, /*special=*/true);
            if (text.size() <= ByteTrie::max_token_bytes) {
                controls[static_cast<size_t>(token)] = std::move(text);
            }
        }
    }
    return std::make_unique<const ByteTrie>(std::vector<std::string_view>(controls.begin(), controls.end()));
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(const llama_vocab * vocab, std::shared_ptr<const Vocabulary> texts,
                                     std::vector<llama_token> ends, bool with_controls)
    : vocab_(vocab), texts_(std::move(texts)), ends_(std::move(ends)) {
    if (with_controls) {
        controls_ = trie_of_controls(*this);
    }
}

bool GrammarVocabulary::is_end(llama_token token) const {
    return std::binary_search(ends_.begin(), ends_.end(), token);
}

}  // namespace eliza
