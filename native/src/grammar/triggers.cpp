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

TriggerWatch::TriggerWatch(const GrammarTriggers & triggers) : triggers_(triggers) {
    for (const std::string & word : triggers_.words) {
        longest_ = std::max(longest_, word.size());
    }
}

bool TriggerWatch::is_trigger(llama_token token) const {
    return std::find(triggers_.tokens.begin(), triggers_.tokens.end(), token) != triggers_.tokens.end();
}

std::optional<size_t> TriggerWatch::feed(std::string_view bytes) {
    tail_ += bytes;
    for (const std::string & word : triggers_.words) {
        if (const size_t place = tail_.find(word); place != std::string::npos) {
            return n_before_ + place;
        }
    }
    const size_t n_kept = std::min(tail_.size(), std::max<size_t>(longest_, 1) - 1);
    n_before_ += tail_.size() - n_kept;
    tail_.erase(0, tail_.size() - n_kept);
    return std::nullopt;
}

void TriggerWatch::reset() {
    tail_.clear();
    n_before_ = 0;
}

}  // namespace eliza
