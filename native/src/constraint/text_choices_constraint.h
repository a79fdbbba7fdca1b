// A span of labels that may be split into tokens in any way.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "byte_trie/masks.h"
#include "byte_trie/text_set.h"
#include "constraint/constraint.h"

namespace eliza {

// The labels, and for each position in them that was reached so far, the allowed tokens. These are found by
// following their next bytes through the vocabulary's trie, so the size of the vocabulary does not matter.
// Safe from any thread.
class TextChoices {
public:
    // Each label is spelled `before` + its text; its name is the text. Throws an Error if the list is empty, or a label
    // is empty, repeated, or cannot be spelled with this vocabulary.
    TextChoices(std::shared_ptr<const Vocabulary> vocabulary, const std::string & before,
                const std::vector<std::string> & texts);

    const std::vector<Token> & allowed(TextSet::State state) const;

    const std::string & name(int32_t label) const { return names_[static_cast<size_t>(label)]; }
    const TextSet & texts() const { return texts_; }

    // Includes an estimate for the tokens found at each position.
    size_t size_bytes() const;
    const ByteTrie & vocabulary() const { return vocabulary_->all(); }

private:
    std::vector<Token> find_allowed(TextSet::State state) const;
    void check_spellable() const;

    std::shared_ptr<const Vocabulary> vocabulary_;
    std::vector<std::string> names_;
    TextSet texts_;
    std::vector<uint8_t> can_be_completed_;  // by state; empty if all states can be completed
    mutable std::mutex mutex_;
    mutable std::unordered_map<TextSet::State, std::vector<Token>> allowed_;
};

class TextChoicesConstraint final : public Constraint {
public:
    // `end_tokens` are in ascending order. If there are any, only they can end a label that is the beginning of another
    // one. Otherwise any token that does not continue a label ends it.
    TextChoicesConstraint(std::shared_ptr<const TextChoices> choices, std::vector<Token> end_tokens);

    TokenSpan allowed() const override { return {allowed_.data(), static_cast<uint32_t>(allowed_.size())}; }
    bool may_end() const override { return is_leaf() && end_tokens_.empty(); }
    bool is_end_token(Token token) const override;

private:
    void to_start() override;
    bool walk(Token token) override;
    bool is_leaf() const override { return choices_->texts().may_end(state_); }
    bool can_go_on() const override { return can_go_on_; }
    int32_t leaf_here() const override { return choices_->texts().trie().leaf(state_); }
    const std::string & name_of(int32_t leaf) const override { return choices_->name(leaf); }
    void find_allowed();

    std::shared_ptr<const TextChoices> choices_;
    std::vector<Token> end_tokens_;
    TextSet::State state_ = TokenTrie::root;
    std::vector<Token> allowed_;
    bool can_go_on_ = true;  // false if no token of the vocabulary continues, which can happen inside a label
};

}  // namespace eliza
