#include "byte_trie/dfa.h"

#include <deque>

#include "error.h"

namespace eliza {
namespace {

std::string state_name(size_t state) { return "dfa: state " + std::to_string(state); }

}  // namespace

Dfa::Dfa(const std::vector<int32_t> & classes, const std::vector<std::vector<int32_t>> & transitions,
         const std::vector<int32_t> & accepting) {
    if (classes.size() != 256) {
        throw invalid_argument("dfa: classes: expected 256 entries, got " + std::to_string(classes.size()));
    }
    const size_t n_states = transitions.size();
    if (n_states == 0 || n_states > max_states) {
        throw invalid_argument("dfa: expected 1 to " + std::to_string(max_states) + " states, got " +
                               std::to_string(n_states));
    }
    const size_t n_classes = transitions[0].size();
    for (size_t byte = 0; byte < classes.size(); ++byte) {
        if (classes[byte] < 0 || static_cast<size_t>(classes[byte]) >= n_classes) {
            throw invalid_argument("dfa: classes[" + std::to_string(byte) + "] is " + std::to_string(classes[byte]) +
                                   ", but a row has " + std::to_string(n_classes) + " columns");
        }
    }
    next_.assign(n_states << 8, none);
    accepting_.assign(n_states, 0);
    for (size_t state = 0; state < n_states; ++state) {
        const std::vector<int32_t> & row = transitions[state];
        if (row.size() != n_classes) {
            throw invalid_argument(state_name(state) + " has " + std::to_string(row.size()) + " columns, state 0 has " +
                                   std::to_string(n_classes));
        }
        for (const int32_t next : row) {
            if (next < -1 || next >= static_cast<int32_t>(n_states)) {
                throw invalid_argument(state_name(state) + " leads to " + std::to_string(next) + ", outside the " +
                                       std::to_string(n_states) + " states");
            }
        }
        for (size_t byte = 0; byte < 256; ++byte) {
            // -1 becomes `none`.
            next_[state << 8 | byte] = static_cast<State>(row[static_cast<size_t>(classes[byte])]);
        }
    }
    for (const int32_t state : accepting) {
        if (state < 0 || static_cast<size_t>(state) >= n_states) {
            throw invalid_argument("dfa: accepting state " + std::to_string(state) + " is outside the " +
                                   std::to_string(n_states) + " states");
        }
        accepting_[static_cast<size_t>(state)] = 1;
    }
    check();
}

void Dfa::check() {
    std::vector<uint8_t> reached(n_states(), 0);
    std::vector<std::vector<std::pair<State, int16_t>>> leads_here(n_states());
    std::deque<State> open = {start()};
    reached[start()] = 1;
    while (!open.empty()) {
        const State state = open.front();
        open.pop_front();
        for (int16_t byte = 0; byte < 256; ++byte) {
            const State next = next_[state << 8 | static_cast<State>(byte)];
            if (next == none) {
                continue;
            }
            if (leads_here[next].empty() || leads_here[next].back().first != state) {
                leads_here[next].emplace_back(state, byte);
            }
            if (reached[next] == 0) {
                reached[next] = 1;
                open.push_back(next);
            }
        }
    }

    constexpr int16_t unknown = -2, at_end = -1;
    byte_to_end_.assign(n_states(), unknown);
    for (State state = 0; state < n_states(); ++state) {
        if (accepting_[state] != 0) {
            byte_to_end_[state] = at_end;
            open.push_back(state);
        }
    }
    while (!open.empty()) {
        const State state = open.front();
        open.pop_front();
        for (const auto & [from, byte] : leads_here[state]) {
            if (byte_to_end_[from] == unknown) {
                byte_to_end_[from] = byte;
                open.push_back(from);
            }
        }
    }
    for (State state = 0; state < n_states(); ++state) {
        if (reached[state] == 0) {
            throw invalid_argument(state_name(state) + " is never reached from state 0");
        }
        if (byte_to_end_[state] == unknown) {
            throw invalid_argument(state_name(state) + " leads to no accepting state");
        }
    }
}

std::string Dfa::shortest_end(State state) const {
    std::string text;
    while (byte_to_end_[state] >= 0) {
        const auto byte = static_cast<uint8_t>(byte_to_end_[state]);
        text += static_cast<char>(byte);
        state = next_[state << 8 | byte];
    }
    return text;
}

}  // namespace eliza
