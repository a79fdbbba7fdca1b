#include "engine/draft/ngram_lookup.h"

#include <algorithm>
#include <utility>

namespace eliza {
namespace {

constexpr float worth_drafting = 0.4f;  // least probability that a guess and all guesses before it are right
constexpr float learning_rate = 0.08f;
// How many tokens of the indexed text are compared with a new text, at the end of the shorter of the two. If they are
// equal, all tokens before them are assumed to be equal, too.
constexpr size_t n_compared = 64;

}  // namespace

std::array<float, NGramLookup::longest_match + 1> NGramLookup::first_chances() {
    std::array<float, longest_match + 1> chances{};
    for (size_t length = 0; length <= longest_match; ++length) {
        chances[length] = 1.0f - 1.0f / (1.0f + 0.3f * static_cast<float>(length));
    }
    return chances;
}

std::vector<llama_token> NGramLookup::draft(const std::vector<llama_token> & tokens, int32_t most) {
    learn(tokens);
    follow(tokens);
    guessed_.clear();
    guessed_at_ = tokens.size();
    const Match match = longest(tokens);
    guessed_length_ = match.length;
    if (match.length == 0 || most < 1) {
        return {};
    }
    // If a guess is right, the match for the next token is one token longer.
    float chance = 1.0f;
    size_t n_worth = 0;
    for (size_t length = match.length; guessed_.size() < static_cast<size_t>(most); ++length) {
        const size_t from = match.next + guessed_.size();
        guessed_.push_back(from < tokens.size() ? tokens[from] : guessed_[from - tokens.size()]);
        chance *= chances_[std::min(length, longest_match)];
        if (chance < worth_drafting) {
            break;
        }
        n_worth = guessed_.size();
    }
    return {guessed_.begin(), guessed_.begin() + static_cast<ptrdiff_t>(n_worth)};
}

// Compares the last guess with the tokens that followed.
void NGramLookup::learn(const std::vector<llama_token> & tokens) {
    for (size_t i = 0; i < guessed_.size() && guessed_at_ + i < tokens.size(); ++i) {
        const bool is_right = tokens[guessed_at_ + i] == guessed_[i];
        float & chance = chances_[std::min(guessed_length_ + i, longest_match)];
        chance += learning_rate * ((is_right ? 1.0f : 0.0f) - chance);
        if (!is_right) {
            break;
        }
    }
}

void NGramLookup::follow(const std::vector<llama_token> & tokens) {
    const size_t n_common = std::min(text_.size(), tokens.size());
    const size_t n_unseen = n_common - std::min(n_common, n_compared);
    const auto differs = [&](size_t from) {
        return std::mismatch(text_.begin() + static_cast<ptrdiff_t>(from),
                             text_.begin() + static_cast<ptrdiff_t>(n_common),
                             tokens.begin() + static_cast<ptrdiff_t>(from))
                   .first -
               text_.begin();
    };
    if (static_cast<size_t>(differs(n_unseen)) < n_common) {
        drop_from(static_cast<size_t>(differs(0)));
    } else {
        drop_from(n_common);
    }
    for (size_t i = text_.size(); i < tokens.size(); ++i) {
        text_.push_back(tokens[i]);
        earlier_.push_back(-1);
        if (i + 1 >= shortest_match) {
            int32_t & head = heads_[head_of(tokens[i - 1], tokens[i])];
            earlier_.back() = std::exchange(head, static_cast<int32_t>(i));
        }
    }
}

void NGramLookup::drop_from(size_t position) {
    while (text_.size() > position) {
        const size_t last = text_.size() - 1;
        if (last + 1 >= shortest_match) {
            heads_[head_of(text_[last - 1], text_[last])] = earlier_[last];
        }
        text_.pop_back();
        earlier_.pop_back();
    }
}

NGramLookup::Match NGramLookup::longest(const std::vector<llama_token> & tokens) const {
    Match best{0, 0};
    if (tokens.size() < shortest_match) {
        return best;
    }
    const size_t end = tokens.size() - 1;
    int32_t candidate = earlier_[end];
    for (size_t n = 0; candidate >= 0 && n < most_candidates && best.length < longest_match; ++n) {
        const auto at = static_cast<size_t>(candidate);
        size_t length = 0;
        while (length <= at && length < longest_match && tokens[at - length] == tokens[end - length]) {
            ++length;
        }
        if (length >= shortest_match && length > best.length) {
            best = {length, at + 1};
        }
        candidate = earlier_[at];
    }
    return best;
}

size_t NGramLookup::head_of(llama_token before_last, llama_token last) {
    const uint64_t both =
        (static_cast<uint64_t>(static_cast<uint32_t>(before_last)) << 32) | static_cast<uint32_t>(last);
    return static_cast<size_t>((both * 0x9E3779B97F4A7C15u) >> 50);
}

}  // namespace eliza
