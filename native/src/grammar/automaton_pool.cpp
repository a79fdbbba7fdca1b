#include "grammar/automaton_pool.h"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

namespace eliza {

std::unique_ptr<GrammarAutomaton> AutomatonPool::take(const std::string & key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found =
        std::find_if(entries_.begin(), entries_.end(), [&](const Entry & entry) { return entry.key == key; });
    if (found == entries_.end()) {
        return nullptr;
    }
    std::unique_ptr<GrammarAutomaton> automaton = std::move(found->automaton);
    n_bytes_ -= found->n_bytes;
    entries_.erase(found);
    return automaton;
}

void AutomatonPool::give_back(std::string key, std::unique_ptr<GrammarAutomaton> automaton, size_t n_bytes) noexcept {
    std::list<Entry> entry, dropped;  // destroyed outside the lock, because freeing many masks takes time
    try {
        entry.push_back({std::move(key), std::move(automaton), n_bytes});
    } catch (const std::bad_alloc &) {
        return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    entries_.splice(entries_.begin(), entry);
    n_bytes_ += n_bytes;
    while (entries_.size() > most_entries || n_bytes_ > most_bytes) {
        n_bytes_ -= entries_.back().n_bytes;
        dropped.splice(dropped.end(), entries_, std::prev(entries_.end()));
    }
}

}  // namespace eliza
