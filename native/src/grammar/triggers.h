// What a lazy grammar waits for; until then it allows everything.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "grammar/trigger_pattern.h"
#include "llama.h"

namespace eliza {

struct GrammarTriggers {
    struct Text {
        std::string word;                               // or, where it is set,
        std::shared_ptr<const TriggerPattern> pattern;  // matches in what was generated
    };
    std::vector<Text> texts;
    std::vector<llama_token> tokens;
};

// `json` is an array of {"type": "word" | "pattern" | "token", "value": ...}. Throws Error that names the
// place.
GrammarTriggers parse_grammar_triggers(const std::string & json);

// Searches a text that grows for the first place where a word stands; each byte is looked at once.
class WordSearch {
public:
    explicit WordSearch(std::string word);

    // Goes on with the bytes that came. Where the word is among what came, returns where it begins.
    std::optional<size_t> feed(std::string_view bytes);
    void reset() { n_matched_ = n_read_ = 0; }

private:
    std::string word_;
    std::vector<size_t> fallback_;  // how much of the word still matches where its next byte does not, by how much did
    size_t n_matched_ = 0;
    size_t n_read_ = 0;
};

// Whether what was generated so far has brought one of the triggers. Not safe from two threads at once.
class TriggerWatch {
public:
    explicit TriggerWatch(const GrammarTriggers & triggers);

    bool is_trigger(llama_token token) const;

    // Goes on with a token's bytes. Where they bring a trigger, returns where in the text the grammar begins: of the
    // first trigger, in the order they were given, that is there.
    std::optional<size_t> feed(std::string_view bytes);
    void reset();

private:
    struct Search {
        std::optional<WordSearch> word;
        std::optional<TriggerSearch> pattern;
    };

    std::vector<Search> searches_;
    std::vector<llama_token> tokens_;
};

}  // namespace eliza
