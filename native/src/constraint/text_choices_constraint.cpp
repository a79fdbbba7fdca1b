#include "constraint/text_choices_constraint.h"

#include <algorithm>

#include "error.h"
#include "json_input.h"

namespace eliza {
namespace {

std::vector<std::string> behind(const std::string & before, const std::vector<std::string> & texts) {
    check_distinct(texts, "choices");
    std::vector<std::string> whole;
    for (const std::string & text : texts) {
        whole.push_back(before + text);
    }
    return whole;
}

}  // namespace

TextChoices::TextChoices(std::shared_ptr<const Vocabulary> vocabulary, const std::string & before,
                         const std::vector<std::string> & texts)
    : vocabulary_(std::move(vocabulary)), names_(texts), texts_(behind(before, texts)) {
    const TokenTrie & trie = texts_.trie();
    const auto none = static_cast<uint32_t>(vocabulary_->all().n_vocab());
    const auto is_token = [&](Token byte) {
        const uint32_t node = vocabulary_->all().child(0, static_cast<uint8_t>(byte));
        return node != 0 && vocabulary_->all().nodes()[node].token() != none;
    };
    bool every_byte_is_a_token = true;
    for (TokenTrie::Node node = 1; node < trie.n_nodes(); ++node) {
        every_byte_is_a_token = every_byte_is_a_token && is_token(trie.token(node));
    }
    if (every_byte_is_a_token) {
        return;  // single-byte tokens can complete any label from any position
    }
    can_be_completed_.assign(trie.n_nodes(), 1);
    // Children have higher numbers than their parent, so they are computed first.
    for (TokenTrie::Node node = static_cast<TokenTrie::Node>(trie.n_nodes()); node-- > 0;) {
        can_be_completed_[node] = texts_.may_end(node) || !find_allowed(node).empty() ? 1 : 0;
    }
    check_spellable();
}

// Checks that every choice can be reached by a sequence of tokens.
void TextChoices::check_spellable() const {
    const TokenTrie & trie = texts_.trie();
    std::vector<uint8_t> reached(trie.n_nodes(), 0);
    reached[TokenTrie::root] = 1;
    for (TokenTrie::Node node = 0; node < trie.n_nodes(); ++node) {
        if (reached[node] == 0) {
            continue;
        }
        for (const Token token : find_allowed(node)) {
            TextSet::State state = node;
            for (const char byte : vocabulary().text(token)) {
                texts_.step(state, static_cast<uint8_t>(byte));
            }
            reached[state] = 1;
        }
    }
    for (int32_t leaf = 0; leaf < static_cast<int32_t>(trie.n_leaves()); ++leaf) {
        if (reached[trie.leaf_node(leaf)] == 0) {
            throw invalid_argument("choices[" + std::to_string(leaf) + "] \"" + names_[static_cast<size_t>(leaf)] +
                                   "\" cannot be spelled with the tokens of this vocabulary");
        }
    }
}

size_t TextChoices::size_bytes() const {
    constexpr size_t found = 128;
    size_t n_bytes = texts_.trie().size_bytes() + texts_.trie().n_nodes() * found;
    for (const std::string & name : names_) {
        n_bytes += sizeof name + name.size();
    }
    return n_bytes;
}

const std::vector<Token> & TextChoices::allowed(TextSet::State state) const {
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        if (const auto known = allowed_.find(state); known != allowed_.end()) {
            return known->second;
        }
    }
    std::vector<Token> found = find_allowed(state);
    const std::lock_guard<std::mutex> lock(mutex_);
    return allowed_.emplace(state, std::move(found)).first->second;  // rehashing does not move the elements
}

std::vector<Token> TextChoices::find_allowed(TextSet::State state) const {
    struct Pair {
        uint32_t in_vocabulary;
        TextSet::State in_texts;
    };
    const TokenTrie & trie = texts_.trie();
    std::vector<Token> tokens;
    std::vector<Pair> open = {{0, state}};
    while (!open.empty()) {
        const Pair at = open.back();
        open.pop_back();
        const TokenSpan bytes = trie.children(at.in_texts);
        for (uint32_t i = 0; i < bytes.size; ++i) {
            const uint32_t node = vocabulary().child(at.in_vocabulary, static_cast<uint8_t>(bytes[i]));
            if (node == 0) {
                continue;
            }
            const TokenTrie::Node below = trie.first_child(at.in_texts) + i;
            open.push_back({node, below});
            const uint32_t token = vocabulary().nodes()[node].token();
            if (token != vocabulary().n_vocab() && (can_be_completed_.empty() || can_be_completed_[below] != 0)) {
                tokens.push_back(static_cast<Token>(token));
                vocabulary().for_each_twin(static_cast<Token>(token), [&](Token twin) { tokens.push_back(twin); });
            }
        }
    }
    std::sort(tokens.begin(), tokens.end());
    return tokens;
}

TextChoicesConstraint::TextChoicesConstraint(std::shared_ptr<const TextChoices> choices, std::vector<Token> end_tokens)
    : Constraint(no_span_limit), choices_(std::move(choices)), end_tokens_(std::move(end_tokens)) {
    find_allowed();
}

bool TextChoicesConstraint::is_end_token(Token token) const {
    return is_leaf() && std::binary_search(end_tokens_.begin(), end_tokens_.end(), token);
}

void TextChoicesConstraint::to_start() {
    state_ = TokenTrie::root;
    find_allowed();
}

bool TextChoicesConstraint::walk(Token token) {
    if (is_end_token(token) || !std::binary_search(allowed_.begin(), allowed_.end(), token)) {
        return false;
    }
    for (const char byte : choices_->vocabulary().text(token)) {
        choices_->texts().step(state_, static_cast<uint8_t>(byte));
    }
    find_allowed();
    return true;
}

void TextChoicesConstraint::find_allowed() {
    allowed_ = choices_->allowed(state_);
    can_go_on_ = !allowed_.empty();
    if (is_leaf() && can_go_on_) {
        allowed_.insert(allowed_.end(), end_tokens_.begin(), end_tokens_.end());
        std::sort(allowed_.begin(), allowed_.end());
    }
}

}  // namespace eliza
