// What JSON text may look like, byte by byte (RFC 8259).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "byte_trie/byte_trie.h"
#include "byte_trie/dfa.h"

namespace eliza {

// A string with its quotes: valid UTF-8 without control characters, and escapes that decode to
// valid Unicode, so a surrogate comes in pairs only.
Dfa json_string_dfa();

// Where the states of json_string_body_dfa() begin in it; only a quote leaves them.
constexpr Dfa::State json_string_body_begin = 1;

// What stands between the quotes of one.
Dfa json_string_body_dfa();

Dfa json_number_dfa();
Dfa json_integer_dfa();

// The most brackets that one token of a vocabulary closes, or opens.
struct JsonBrackets {
    size_t closed = 64, opened = 64;
};
JsonBrackets most_json_brackets(const ByteTrie & vocabulary);

// Any value, nested as deep as a stack of bits allows.
class JsonRecognizer {
public:
    static constexpr int32_t max_depth_limit = 64;
    // Bytes of white space in a row: a model that does nothing else would never end.
    static constexpr uint8_t max_spaces = 20;

    // Throws Error unless max_depth, the objects and arrays inside each other, is 1 to 64. What is
    // known of the vocabulary makes more states share a mask.
    explicit JsonRecognizer(int32_t max_depth, JsonBrackets most = {});

    struct State {
        uint64_t open = 0;   // innermost in bit 0; 1 = object, 0 = array
        uint8_t depth = 0;   // how many are open
        uint8_t lexeme = 0;  // where in one
        uint8_t spaces = 0;  // in a row, so far
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

    // Inside a string: the state of json_string_body_dfa() there.
    std::optional<Dfa::State> inside_string(const State & state) const;

private:
    // Where a lexeme is not inside a string, a number or a name.
    enum Place : uint8_t { at_value, at_value_or_end, at_key_or_end, at_key, at_colon, after_value, n_places };

    // Entries of next_ that are more than a change of the lexeme.
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
    uint8_t key_string_ = 0, value_string_ = 0;  // the first lexeme of each
    std::vector<std::array<uint8_t, 256>> next_;
    std::vector<uint8_t> is_value_complete_;
    std::vector<std::string> rest_;  // bytes that complete the lexeme, up to after_value
};

}  // namespace eliza
