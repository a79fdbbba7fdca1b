// The possible positions of the output in a grammar, byte by byte: an automaton whose states are created on first use.
//
// A place in a grammar is an element and a stack. The stack holds, for each enclosing rule, the element with which the
// grammar continues after that rule. Stacks share their common parts, so a stack is a number. A state is the set of all
// places the output may be at. An ambiguous grammar has many places, but each occurs only once in a state, however many
// derivations lead to it. The transition of a state by a byte is computed once. In a walk over the vocabulary, most
// bytes need one table lookup.
//
//     root ::= "a" list "b"       "a["     state: (list's first element, stack (element "b", nothing))
//     list ::= "[" list? "]"
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "grammar/gbnf.h"

namespace eliza {

struct GrammarLimits {
    static constexpr int32_t default_n_steps = 10'000'000;

    int64_t n_steps = default_n_steps;       // places examined per token
    size_t n_bytes = size_t(64) << 20;       // bytes of states created per token
    size_t n_bytes_kept = size_t(16) << 20;  // bytes of states and masks kept from one token to the next
    std::function<void()> checkpoint;        // called regularly; may throw
};

// Not thread-safe.
class GrammarStates {
public:
    using State = uint32_t;
    static constexpr State dead = 0;  // no text of the grammar begins this way

    GrammarStates(std::shared_ptr<const GrammarRules> rules, GrammarLimits limits);

    // Resets the counters of the limits. The functions below throw an Error when a limit is exceeded; no data is lost
    // then.
    void begin_token();

    State start();
    State step(State state, uint8_t byte) {
        const State next = next_[state * n_columns_ + column_[byte]];
        return next != unknown ? next : make_step(state, byte);
    }
    bool may_end(State state) const { return states_[state].may_end; }

    // True if the text can continue, with a byte or with a token that the grammar names.
    bool may_go_on(State state) const { return states_[state].n_places > 0; }

    // A grammar may name a token instead of spelling its text. Returns the state after all elements that name `token`.
    // for_each_token_element() calls `visit(token, inverted)` for each element that names a token.
    State step_by_token(State state, int32_t token);
    template <typename Visit>
    void for_each_token_element(State state, const Visit & visit) const {
        for (uint32_t i = 0; i < states_[state].n_places; ++i) {
            const GrammarRules::Element & element = rules_->elements[places_[states_[state].first_place + i].element];
            if (element.kind != GrammarRules::Kind::character) {
                visit(static_cast<int32_t>(element.value), element.kind == GrammarRules::Kind::not_token);
            }
        }
    }
    State either(State a, State b);

    // True if these states are too large to keep for the next token. `n_more_bytes` is the size of data that the caller
    // keeps for the states, such as masks.
    bool is_large(size_t n_more_bytes) const { return n_bytes() + n_more_bytes > limits_.n_bytes_kept; }

    // The size of the states in bytes.
    size_t n_bytes() const;

    // Replaces the limits, including the checkpoint, and keeps the states.
    void set_limits(GrammarLimits limits) { limits_ = std::move(limits); }

    // True if a computation has exceeded a limit. The states that it created are kept, so the same computation takes
    // fewer steps next time, and may not fail again.
    bool has_exceeded_limit() const { return has_exceeded_limit_; }

    // Returns an empty automaton of the same grammar, and adopts a state of another automaton of that grammar.
    std::unique_ptr<GrammarStates> fresh() const { return std::make_unique<GrammarStates>(rules_, limits_); }
    State adopt(const GrammarStates & other, State state);

private:
    static constexpr State unknown = 0xffffffff;

    struct Place {
        uint32_t element;
        Utf8Classes::Place byte;  // how much of the character has been read
        uint32_t stack;
        bool operator==(const Place & other) const {
            return element == other.element && byte == other.byte && stack == other.stack;
        }
        bool operator<(const Place & other) const {
            return element != other.element ? element < other.element
                   : stack != other.stack   ? stack < other.stack
                                            : byte < other.byte;
        }
    };
    struct StateInfo {
        uint32_t first_place, n_places;
        bool may_end, names_tokens;
    };
    // The element that follows when a rule ends, and the frame below it; 0 is an empty stack.
    struct Frame {
        uint32_t element, below;
    };

    State make_step(State state, uint8_t byte);
    void begin_search();
    void follow(uint32_t element, uint32_t stack);
    State intern_found();
    uint32_t pushed(uint32_t element, uint32_t stack);
    void count_step();
    void check_bytes();

    const std::shared_ptr<const GrammarRules> rules_;
    GrammarLimits limits_;
    bool has_exceeded_limit_ = false;
    std::array<uint8_t, 256> column_;
    size_t n_columns_;

    std::vector<State> next_;  // a row per state, a column per class of equivalent bytes
    std::vector<StateInfo> states_;
    std::vector<Place> places_;
    std::unordered_multimap<uint64_t, State> states_by_hash_;
    std::vector<Frame> frames_;
    std::unordered_map<uint64_t, uint32_t> stack_of_;

    // The current computation.
    int64_t n_steps_left_ = 0;
    size_t n_bytes_before_ = 0;
    std::vector<Place> found_;
    bool found_end_ = false;
    std::vector<Frame> to_follow_;
    std::unordered_map<uint64_t, uint64_t>
        followed_;  // by element and stack: the round in which the pair was last followed
    uint64_t round_ = 0;
};

}  // namespace eliza
