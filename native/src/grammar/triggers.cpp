#include "grammar/triggers.h"

#include <algorithm>
#include <utility>

#include "error.h"
#include "json_input.h"

namespace eliza {

GrammarTriggers parse_grammar_triggers(const std::string & text) {
    const Json json = parse_json(text, "grammar_triggers");
    if (!json.is_array() || json.empty()) {
        throw invalid_argument("grammar_triggers: expected an array of triggers, found " +
                               (json.is_array() ? "none" : kind_of(json)));
    }
    constexpr size_t max_triggers = 10000;
    if (json.size() > max_triggers) {
        throw invalid_argument("grammar_triggers: expected at most " + std::to_string(max_triggers) +
                               " triggers, got " + std::to_string(json.size()));
    }
    GrammarTriggers triggers;
    for (size_t i = 0; i < json.size(); ++i) {
        const std::string place = at("grammar_triggers", i);
        const auto type = member(json[i], "type", &Json::is_string, "a string", place).text();
        if (type == "token") {
            int64_t token = 0;
            if (!read_int(member(json[i], "value", &Json::is_number_integer, "a token id", place), 0, INT32_MAX,
                          token)) {
                throw invalid_argument(place + ".value: expected a token id from 0 to " + std::to_string(INT32_MAX));
            }
            triggers.tokens.push_back(static_cast<llama_token>(token));
            continue;
        }
        if (type != "word") {
            throw invalid_argument(place + ".type: expected word or token, got \"" + type + "\"");
        }
        triggers.words.push_back(member(json[i], "value", &Json::is_string, "a string", place).text());
    }
    return triggers;
}

// The algorithm of Knuth, Morris and Pratt.
WordSearch::WordSearch(std::string word) : word_(std::move(word)), fallback_(word_.size() + 1, 0) {
    size_t n_matched = 0;
    for (size_t i = 1; i < word_.size(); ++i) {
        while (n_matched > 0 && word_[i] != word_[n_matched]) {
            n_matched = fallback_[n_matched];
        }
        n_matched += word_[i] == word_[n_matched] ? 1 : 0;
        fallback_[i + 1] = n_matched;
    }
}

std::optional<size_t> WordSearch::feed(std::string_view bytes) {
    for (size_t i = 0; n_matched_ < word_.size() && i < bytes.size(); ++i) {
        while (n_matched_ > 0 && bytes[i] != word_[n_matched_]) {
            n_matched_ = fallback_[n_matched_];
        }
        n_matched_ += bytes[i] == word_[n_matched_] ? 1 : 0;
        ++n_read_;
    }
    return n_matched_ == word_.size() ? std::optional<size_t>(n_read_ - n_matched_) : std::nullopt;
}

TriggerWatch::TriggerWatch(const GrammarTriggers & triggers)
    : searches_(triggers.words.begin(), triggers.words.end()), tokens_(triggers.tokens) {}

bool TriggerWatch::is_trigger(llama_token token) const {
    return std::find(tokens_.begin(), tokens_.end(), token) != tokens_.end();
}

std::optional<size_t> TriggerWatch::feed(std::string_view bytes) {
    std::optional<size_t> begin;
    for (WordSearch & search : searches_) {
        const auto found = search.feed(bytes);
        begin = begin ? begin : found;
    }
    return begin;
}

void TriggerWatch::reset() {
    for (WordSearch & search : searches_) {
        search.reset();
    }
}

}  // namespace eliza
