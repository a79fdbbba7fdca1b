// The interface of a recognizer, which decides byte by byte whether a string is accepted.
//
//   struct Recognizer {
//       using State;                                  // small; copied for every byte of a walk
//       State start() const;
//       bool step(State & state, uint8_t byte) const; // false: the byte is not allowed; state unchanged
//       bool may_end(State state) const;              // true: the bytes so far are accepted
//       std::string shortest_end(State state) const;  // a shortest string that leads to may_end()
//       MaskKey key(State state) const;               // states with equal keys allow the same tokens
//   };
//
// From every state that step() reaches, some accepted string can be completed. Recognizers are immutable, so several
// threads may share one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace eliza {

struct MaskKey {
    uint64_t high = 0, low = 0;
    bool operator==(const MaskKey & other) const { return high == other.high && low == other.low; }
};

// A recognizer with its state history, as ByteTrie::add_allowed() needs it.
template <typename Recognizer>
class RecognizerStack {
public:
    using State = typename Recognizer::State;

    // At most `room` bytes can be on the stack.
    RecognizerStack(const Recognizer & recognizer, State state, size_t room)
        : recognizer_(recognizer), states_(room + 1, state), top_(states_.data()) {}

    bool try_push_byte(uint8_t byte) {
        State next = *top_;
        if (!recognizer_.step(next, byte)) {
            return false;
        }
        *++top_ = next;
        return true;
    }
    void pop_bytes(size_t n) { top_ -= n; }

    const State & state() const { return *top_; }

private:
    const Recognizer & recognizer_;
    std::vector<State> states_;
    State * top_;
};

// Accepts any bytes.
class AnythingRecognizer {
public:
    struct State {
        bool operator==(State) const { return true; }
    };
    State start() const { return {}; }
    bool step(State &, uint8_t) const { return true; }
    bool may_end(State) const { return true; }
    std::string shortest_end(State) const { return ""; }
    MaskKey key(State) const { return {}; }
};

}  // namespace eliza
