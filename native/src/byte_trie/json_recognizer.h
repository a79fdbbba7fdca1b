// A recognizer of JSON text (RFC 8259), byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "byte_trie/byte_trie.h"
#include "byte_trie/dfa.h"

namespace eliza {

// Accepts a string with its quotes: valid UTF-8 without control characters, and escapes that decode to valid Unicode,
// so surrogates only occur in pairs.
Dfa json_string_dfa();

// The first state in json_string_dfa() that belongs to json_string_body_dfa(). Only a quote leaves those states.
constexpr Dfa::State json_string_body_begin = 1;

// Accepts the text between the quotes of a string.
Dfa json_string_body_dfa();

Dfa json_number_dfa();
Dfa json_integer_dfa();

// The largest number of brackets that any single token of a vocabulary closes, and the largest number it opens.
struct JsonBrackets {
    size_t closed = 64, opened = 64;
};
JsonBrackets most_json_brackets(const ByteTrie & vocabulary);

// Accepts any value. The nesting depth is limited by the bits of a 64-bit stack.
class JsonRecognizer {
public:
    static constexpr int32_t max_depth_limit = 64;
    // The limit of consecutive white space. Without it, a model could write white space for ever.
    static constexpr uint8_t max_spaces = 20;

    // max_depth is the number of objects and arrays that may be nested: 1 to 64; throws Error otherwise. With the
    // vocabulary's bracket counts, more states share a mask.
    explicit JsonRecognizer(int32_t max_depth, JsonBrackets most = {});

    struct State {
        uint64_t open = 0;   // the stack of open brackets, innermost in bit 0; 1 = object, 0 = array
        uint8_t depth = 0;   // number of open brackets
        uint8_t lexeme = 0;  // the state of the current lexeme
        uint8_t spaces = 0;  // consecutive white space so far
        bool operator==(const State & other) const {
            return open == other.open && depth == other.depth && lexeme == other.lexeme && spaces == other.spaces;
        }
    };

    State start() const { return {}; }
    bool step(State & state, uint8_t byte) const {
        const uint8_t next = next_[state.lexeme][byte];
        if (next < first_action) {
            state.lexeme = next;
            state.spaces = 0;
            return true;
        }
        return next != refuse && act(state, next);
    }
    bool may_end(const State & state) const { return state.depth == 0 && is_value_complete_[state.lexeme] != 0; }
    std::string shortest_end(const State & state) const;
    MaskKey key(const State & state) const;
    size_t size_bytes() const { return next_.size() * (sizeof next_[0] + sizeof rest_[0] + 1); }

    // Inside a string, returns the corresponding state of json_string_body_dfa(); otherwise nothing.
    std::optional<Dfa::State> inside_string(const State & state) const;

private:
    // Lexeme states outside strings, numbers and literals.
    enum Place : uint8_t { at_value, at_value_or_end, at_key_or_end, at_key, at_colon, after_value, n_places };

    // Entries of next_ that do more than change the lexeme.
    static constexpr uint8_t first_action = 0xf0;
    enum Action : uint8_t { open_object = first_action, open_array, close_object, close_array, comma, space };
    static constexpr uint8_t refuse = 0xff;

    bool act(State & state, uint8_t action) const;
    uint8_t embed(const Dfa & dfa, uint8_t after);
    void begin_value(uint8_t place, uint8_t first_lexeme, const Dfa & dfa);
    void end_value_with_structure(uint8_t lexeme);

    size_t max_depth_;
    JsonBrackets most_;
    uint8_t n_lexemes_ = n_places;
    uint8_t key_string_ = 0, value_string_ = 0;  // the first lexeme of a key and of a string value
    std::vector<std::array<uint8_t, 256>> next_;
    std::vector<uint8_t> is_value_complete_;
    std::vector<std::string> rest_;  // bytes that complete the lexeme, up to after_value
};

}  // namespace eliza
