// A recognizer that is defined by a table: a deterministic finite automaton over bytes.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "byte_trie/recognizer.h"

namespace eliza {

class Dfa {
public:
    using State = uint32_t;
    static constexpr State none = 0xffffffff;
    static constexpr size_t max_states = 65535;

    // classes[byte] is the column of the byte in `transitions`. `transitions` has one row per state with the next state
    // for each column, or -1 for none. State 0 is the initial state. Throws an Error that names the state if the table
    // is not rectangular, a transition leads outside it, a state cannot be reached from state 0, or no accepting state
    // can be reached from a state.
    Dfa(const std::vector<int32_t> & classes, const std::vector<std::vector<int32_t>> & transitions,
        const std::vector<int32_t> & accepting);

    size_t n_states() const { return accepting_.size(); }
    size_t size_bytes() const {
        return next_.size() * sizeof(State) + n_states() * (sizeof accepting_[0] + sizeof byte_to_end_[0]);
    }

    State start() const { return 0; }
    bool step(State & state, uint8_t byte) const {
        const State next = next_[state << 8 | byte];
        if (next == none) {
            return false;
        }
        state = next;
        return true;
    }
    bool may_end(State state) const { return accepting_[state] != 0; }
    std::string shortest_end(State state) const;
    MaskKey key(State state) const { return {0, state}; }

private:
    friend class DfaBuilder;
    explicit Dfa(size_t n_states) : next_(n_states << 8, none), accepting_(n_states) {}

    void check();  // also computes byte_to_end_

    // One row of 256 entries per state. A table with one column per class would be smaller, but would need a second
    // memory access for each byte.
    std::vector<State> next_;
    std::vector<uint8_t> accepting_;
    std::vector<int16_t> byte_to_end_;  // the first byte of a shortest path to an accepting state
};

// Builds a Dfa edge by edge.
class DfaBuilder {
public:
    explicit DfaBuilder(size_t n_states) : dfa_(n_states) {}

    DfaBuilder & on(uint32_t from, uint8_t first, uint8_t last, uint32_t to) {
        for (uint32_t byte = first; byte <= last; ++byte) {
            dfa_.next_[from << 8 | byte] = to;
        }
        return *this;
    }
    DfaBuilder & on(uint32_t from, const char * bytes, uint32_t to) {
        for (; *bytes != '\0'; ++bytes) {
            on(from, static_cast<uint8_t>(*bytes), static_cast<uint8_t>(*bytes), to);
        }
        return *this;
    }
    DfaBuilder & accept(uint32_t state) {
        dfa_.accepting_[state] = 1;
        return *this;
    }
    Dfa build() {
        dfa_.check();
        return std::move(dfa_);
    }

private:
    Dfa dfa_;
};

}  // namespace eliza
