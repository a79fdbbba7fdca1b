#include "byte_trie/json_recognizer.h"

#include <algorithm>

#include "error.h"

namespace eliza {
namespace {

enum StringState : uint32_t {
    before,  // before the opening quote
    body,
    escape,
    hex_3,  // three digits of \uXXXX are missing, and so on
    hex_2,
    hex_1,
    hex_4,
    hex_after_d,  // after \uD: a surrogate, or an ordinary character
    high_2,       // two digits of a high surrogate are missing
    high_1,
    low_backslash,  // a low surrogate must follow
    low_u,
    low_d,
    low_digit,
    tail_1,  // one byte of a UTF-8 character is missing, and so on
    tail_2,
    tail_3,
    tail_e0,  // the next byte has a restricted range after these lead bytes
    tail_ed,
    tail_f0,
    tail_f4,
    after,  // after the closing quote
    n_string_states
};

constexpr const char * hex_digits = "0123456789abcdefABCDEF";

void add_string_body(DfaBuilder & dfa, uint32_t shift) {
    const auto at = [&](uint32_t state) { return state - shift; };
    dfa.on(at(body), 0x20, 0x7f, at(body)).on(at(body), 0xc2, 0xdf, at(tail_1)).on(at(body), 0xe1, 0xef, at(tail_2));
    dfa.on(at(body), 0xe0, 0xe0, at(tail_e0)).on(at(body), 0xed, 0xed, at(tail_ed));
    dfa.on(at(body), 0xf0, 0xf0, at(tail_f0))
        .on(at(body), 0xf1, 0xf3, at(tail_3))
        .on(at(body), 0xf4, 0xf4, at(tail_f4));
    dfa.on(at(body), "\\", at(escape));
    dfa.on(at(tail_1), 0x80, 0xbf, at(body)).on(at(tail_2), 0x80, 0xbf, at(tail_1));
    dfa.on(at(tail_3), 0x80, 0xbf, at(tail_2)).on(at(tail_e0), 0xa0, 0xbf, at(tail_1));
    dfa.on(at(tail_ed), 0x80, 0x9f, at(tail_1)).on(at(tail_f0), 0x90, 0xbf, at(tail_2));
    dfa.on(at(tail_f4), 0x80, 0x8f, at(tail_2));
    dfa.on(at(escape), "\"\\/bfnrt", at(body)).on(at(escape), "u", at(hex_4));
    dfa.on(at(hex_4), hex_digits, at(hex_3)).on(at(hex_4), "dD", at(hex_after_d));
    dfa.on(at(hex_3), hex_digits, at(hex_2)).on(at(hex_2), hex_digits, at(hex_1)).on(at(hex_1), hex_digits, at(body));
    dfa.on(at(hex_after_d), "01234567", at(hex_2)).on(at(hex_after_d), "89abAB", at(high_2));
    dfa.on(at(high_2), hex_digits, at(high_1)).on(at(high_1), hex_digits, at(low_backslash));
    dfa.on(at(low_backslash), "\\", at(low_u)).on(at(low_u), "u", at(low_d)).on(at(low_d), "dD", at(low_digit));
    dfa.on(at(low_digit), "cdefCDEF", at(hex_2));
}

constexpr const char * digits = "0123456789";

Dfa literal_dfa() {
    const std::array<const char *, 3> names = {"true", "false", "null"};
    DfaBuilder dfa(12);
    uint32_t n_states = 1;
    const uint32_t end = 11;
    for (const char * name : names) {
        uint32_t state = 0;
        for (size_t i = 0; name[i] != '\0'; ++i) {
            const uint32_t next = name[i + 1] == '\0' ? end : n_states++;
            const auto byte = static_cast<uint8_t>(name[i]);
            dfa.on(state, byte, byte, next);
            state = next;
        }
    }
    return dfa.accept(end).build();
}

}  // namespace

Dfa json_string_dfa() {
    DfaBuilder dfa(n_string_states);
    add_string_body(dfa, 0);
    // This replaces the transition of the quote, which the range 0x20 to 0x7f above treats as text.
    return dfa.on(before, "\"", body).on(body, "\"", after).accept(after).build();
}

static_assert(body == json_string_body_begin);

Dfa json_string_body_dfa() {
    DfaBuilder dfa(n_string_states - 2);  // without `before` and `after`
    add_string_body(dfa, body);
    return dfa.on(0, "\"", Dfa::none).accept(0).build();
}

Dfa json_number_dfa() {
    enum : uint32_t {
        start,
        minus,
        zero,
        integer,
        point,
        fraction,
        exponent,
        exponent_sign,
        exponent_digits,
        n_states
    };
    DfaBuilder dfa(n_states);
    dfa.on(start, "-", minus).on(start, "0", zero).on(start, "123456789", integer);
    dfa.on(minus, "0", zero).on(minus, "123456789", integer).on(integer, digits, integer);
    dfa.on(zero, ".", point).on(integer, ".", point).on(point, digits, fraction).on(fraction, digits, fraction);
    for (const uint32_t state : {zero, integer, fraction}) {
        dfa.on(state, "eE", exponent).accept(state);
    }
    dfa.on(exponent, "+-", exponent_sign).on(exponent, digits, exponent_digits);
    dfa.on(exponent_sign, digits, exponent_digits).on(exponent_digits, digits, exponent_digits);
    return dfa.accept(exponent_digits).build();
}

Dfa json_integer_dfa() {
    enum : uint32_t { start, minus, zero, integer, n_states };
    DfaBuilder dfa(n_states);
    dfa.on(start, "-", minus).on(start, "0", zero).on(start, "123456789", integer);
    dfa.on(minus, "0", zero).on(minus, "123456789", integer).on(integer, digits, integer);
    return dfa.accept(zero).accept(integer).build();
}

JsonRecognizer::JsonRecognizer(int32_t max_depth, JsonBrackets most)
    : max_depth_(static_cast<size_t>(max_depth)), most_(most) {
    if (max_depth < 1 || max_depth > max_depth_limit) {
        throw invalid_argument("JSON depth: expected 1 to " + std::to_string(max_depth_limit) + ", got " +
                               std::to_string(max_depth));
    }
    std::array<uint8_t, 256> nothing;
    nothing.fill(refuse);
    next_.assign(n_places, nothing);
    is_value_complete_.assign(n_places, 0);
    is_value_complete_[after_value] = 1;
    rest_ = {"0", "]", "}", "\"\":0", ":0", ""};

    const Dfa string = json_string_dfa(), number = json_number_dfa(), literal = literal_dfa();
    key_string_ = embed(string, at_colon);
    value_string_ = embed(string, after_value);
    const uint8_t value_number = embed(number, after_value), value_literal = embed(literal, after_value);
    for (const uint8_t place : {at_value, at_value_or_end}) {
        begin_value(place, value_string_, string);
        begin_value(place, value_number, number);
        begin_value(place, value_literal, literal);
        next_[place]['{'] = open_object;
        next_[place]['['] = open_array;
    }
    for (const uint8_t place : {at_key, at_key_or_end}) {
        begin_value(place, key_string_, string);
    }
    next_[at_value_or_end][']'] = close_array;
    next_[at_key_or_end]['}'] = close_object;
    next_[at_colon][':'] = at_value;
    for (const uint8_t place : {at_value, at_value_or_end, at_key, at_key_or_end, at_colon}) {
        for (const char byte : {' ', '\t', '\n', '\r'}) {
            next_[place][static_cast<uint8_t>(byte)] = space;
        }
    }
    for (uint8_t lexeme = 0; lexeme < n_lexemes_; ++lexeme) {
        if (is_value_complete_[lexeme] != 0) {
            end_value_with_structure(lexeme);
        }
    }
}

// Adds the states of a DFA as lexemes and returns the number of the first one. A state without outgoing transitions,
// such as the one after a closing quote, becomes `after_it` itself.
uint8_t JsonRecognizer::embed(const Dfa & dfa, uint8_t after_it) {
    std::vector<uint8_t> lexeme_of(dfa.n_states());
    const uint8_t first = n_lexemes_;
    const auto steps = [&](Dfa::State state, uint32_t byte) { return dfa.step(state, static_cast<uint8_t>(byte)); };
    for (Dfa::State state = 0; state < dfa.n_states(); ++state) {
        bool goes_on = false;
        for (uint32_t byte = 0; byte < 256; ++byte) {
            goes_on = goes_on || steps(state, byte);
        }
        lexeme_of[state] = goes_on ? n_lexemes_++ : after_it;
    }
    std::array<uint8_t, 256> nothing;
    nothing.fill(refuse);
    next_.resize(n_lexemes_, nothing);
    is_value_complete_.resize(n_lexemes_, 0);
    rest_.resize(n_lexemes_);
    for (Dfa::State state = 0; state < dfa.n_states(); ++state) {
        const uint8_t lexeme = lexeme_of[state];
        if (lexeme == after_it) {
            continue;
        }
        for (uint32_t byte = 0; byte < 256; ++byte) {
            Dfa::State next = state;
            if (dfa.step(next, static_cast<uint8_t>(byte))) {
                next_[lexeme][byte] = lexeme_of[next];
            }
        }
        is_value_complete_[lexeme] = dfa.may_end(state) ? 1 : 0;
        rest_[lexeme] = dfa.shortest_end(state) + rest_[after_it];
    }
    return first;
}

void JsonRecognizer::begin_value(uint8_t place, uint8_t first_lexeme, const Dfa & dfa) {
    for (uint32_t byte = 0; byte < 256; ++byte) {
        Dfa::State state = dfa.start();
        if (dfa.step(state, static_cast<uint8_t>(byte))) {
            next_[place][byte] = next_[first_lexeme][byte];
        }
    }
}

void JsonRecognizer::end_value_with_structure(uint8_t lexeme) {
    next_[lexeme][','] = comma;
    next_[lexeme]['}'] = close_object;
    next_[lexeme][']'] = close_array;
    for (const char byte : {' ', '\t', '\n', '\r'}) {
        next_[lexeme][static_cast<uint8_t>(byte)] = space;
    }
}

bool JsonRecognizer::act(State & state, uint8_t action) const {
    const bool in_object = (state.open & 1) != 0;
    switch (action) {
        case open_object:
        case open_array:
            if (state.depth >= max_depth_) {
                return false;
            }
            state.open = state.open << 1 | (action == open_object ? 1 : 0);
            ++state.depth;
            state.lexeme = action == open_object ? at_key_or_end : at_value_or_end;
            break;
        case close_object:
        case close_array:
            if (state.depth == 0 || in_object != (action == close_object)) {
                return false;
            }
            state.open >>= 1;
            --state.depth;
            state.lexeme = after_value;
            break;
        case comma:
            if (state.depth == 0) {
                return false;
            }
            state.lexeme = in_object ? at_key : at_value;
            break;
        case space:
            // White space around the whole value is rejected, because it belongs to the fixed text there.
            if (state.depth == 0 || state.spaces == max_spaces) {
                return false;
            }
            if (is_value_complete_[state.lexeme] != 0) {
                state.lexeme = after_value;  // for example, a number cannot continue after white space
            }
            ++state.spaces;
            return true;
    }
    state.spaces = 0;
    return true;
}

std::string JsonRecognizer::shortest_end(const State & state) const {
    std::string text = is_value_complete_[state.lexeme] != 0 ? "" : rest_[state.lexeme];
    // States directly after an opening bracket are completed by closing that bracket.
    int32_t n_open = state.depth - (state.lexeme == at_value_or_end || state.lexeme == at_key_or_end ? 1 : 0);
    uint64_t open = n_open < state.depth ? state.open >> 1 : state.open;
    for (; n_open > 0; --n_open, open >>= 1) {
        text += (open & 1) != 0 ? '}' : ']';
    }
    return text;
}

// States that allow the same tokens get the same key. A token that closes at most n brackets depends only on the n + 1
// innermost ones, and a token that opens at most n brackets depends on the depth only near the limit.
MaskKey JsonRecognizer::key(const State & state) const {
    uint64_t open = state.open;
    size_t depth = state.depth;
    if (depth > most_.closed && depth + most_.opened <= max_depth_) {
        depth = most_.closed + 1;
        if (depth < max_depth_limit) {
            open &= (uint64_t(1) << depth) - 1;
        }
    }
    return {open, depth << 16 | size_t(state.lexeme) << 8 | state.spaces};
}

std::optional<Dfa::State> JsonRecognizer::inside_string(const State & state) const {
    for (const uint8_t first : {key_string_, value_string_}) {
        if (state.lexeme >= first + body && state.lexeme < first + after) {
            return state.lexeme - first - body;
        }
    }
    return std::nullopt;
}

JsonBrackets most_json_brackets(const ByteTrie & vocabulary) {
    JsonBrackets most{0, 0};
    for (size_t token = 0; token < vocabulary.n_vocab(); ++token) {
        const std::string_view text = vocabulary.text(static_cast<Token>(token));
        const auto count = [&](char a, char b) {
            return static_cast<size_t>(std::count(text.begin(), text.end(), a) +
                                       std::count(text.begin(), text.end(), b));
        };
        most.closed = std::max(most.closed, count(']', '}'));
        most.opened = std::max(most.opened, count('[', '{'));
    }
    return most;
}

}  // namespace eliza
