// The automata of grammars that are not in use. Building states and masks is most of the work of following a grammar,
// so the next text of the same grammar continues with the automaton of an earlier text.
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

// The states of a grammar that have been visited, and the masks of some of them. One text uses it at a time.
struct GrammarAutomaton {
    std::unique_ptr<GrammarStates> states;
    std::unordered_map<GrammarStates::State, SharedMask> masks;
};

class AutomatonPool {
public:
    // Returns the automaton that was given back last for this key, or nullptr.
    std::unique_ptr<GrammarAutomaton> take(const std::string & key);

    // Keeps an automaton of n_bytes bytes, and drops the automata that were given back first if there are too many.
    // Drops this one if there is no memory for the entry.
    void give_back(const std::string & key, std::unique_ptr<GrammarAutomaton> automaton, size_t n_bytes) noexcept;

    size_t size() const;

private:
    static constexpr size_t most_entries = 64, most_bytes = size_t(64) << 20;

    struct Entry {
        std::string key;
        std::unique_ptr<GrammarAutomaton> automaton;
        size_t n_bytes;
    };

    mutable std::mutex mutex_;  // guards the members below
    std::list<Entry> entries_;  // the one that was given back last comes first
    size_t n_bytes_ = 0;
};

}  // namespace eliza
