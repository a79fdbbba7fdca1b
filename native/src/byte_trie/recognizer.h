// What a recognizer is: which byte strings are legal, told byte by byte.
//
//   struct Recognizer {
//       using State;                                  // small, copied for every byte of a walk
//       State start() const;
//       bool step(State & state, uint8_t byte) const; // false: the byte is illegal; state unchanged
//       bool may_end(State state) const;              // what was read is legal as a whole
//       std::string shortest_end(State state) const;  // bytes that lead to may_end(), as few as there are
//       MaskKey key(State state) const;               // states with the same one allow the same tokens
//   };
//
// From every state that step() leads to, some legal string can be completed. Recognizers do not
// change, so several threads may use one.
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

// Walks a recognizer forth and back: what ByteTrie::add_allowed asks of.
template <typename Recognizer>
class RecognizerStack {
public:
    using State = typename Recognizer::State;

    // At most `room` bytes are pushed at a time.
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

// Any bytes at all.
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
