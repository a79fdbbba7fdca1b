// Automata of grammars, kept for the next generation with the same grammar. It then need not parse the grammar and
// build the same states and masks again.
//
// Safe from any thread.
#pragma once

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "byte_trie/masks.h"
#include "grammar/grammar_states.h"

namespace eliza {

// The visited states of a grammar, and the masks of some of them. Used by one generation at a time.
struct GrammarAutomaton {
    std::unique_ptr<GrammarStates> states;
    std::unordered_map<GrammarStates::State, SharedMask> masks;
};

class AutomatonPool {
public:
    // Removes the latest automaton with this key from the pool and returns it. Returns nullptr if the pool has none.
    std::unique_ptr<GrammarAutomaton> take(const std::string & key);

    // Keeps an automaton of n_bytes bytes. If the pool is full, drops its oldest automata. If memory runs out, drops
    // the new one.
    void give_back(std::string key, std::unique_ptr<GrammarAutomaton> automaton, size_t n_bytes) noexcept;

private:
    static constexpr size_t most_entries = 64, most_bytes = size_t(64) << 20;

    struct Entry {
        std::string key;
        std::unique_ptr<GrammarAutomaton> automaton;
        size_t n_bytes;
    };

    mutable std::mutex mutex_;  // guards the members below
    std::list<Entry> entries_;  // the latest first
    size_t n_bytes_ = 0;
};

}  // namespace eliza
