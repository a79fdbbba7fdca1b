// A recognizer of a value with fixed text before and after it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "byte_trie/recognizer.h"

namespace eliza {

// The fixed text before a value, and the fixed text after it.
struct Frame {
    std::string before, after;
};

// The text that must come next.
struct ForcedText {
    std::string text;
    size_t n_before = 0;      // bytes of it that belong to the fixed text before the value
    bool ends_value = false;  // after it the value is complete and cannot continue
};

// If both the value and the text after it can continue with the next byte, the value continues.
template <typename Recognizer>
class Framed {
public:
    struct State {
        typename Recognizer::State value;
        // The number of bytes read so far of `before` and `after` together. Inside the value it is the size of
        // `before`.
        uint32_t position = 0;
        bool operator==(const State & other) const { return value == other.value && position == other.position; }
    };

    // `recognizer` must outlive this.
    Framed(Frame frame, const Recognizer & recognizer) : frame_(std::move(frame)), recognizer_(recognizer) {}

    size_t size_bytes() const {  // includes the recognizer, although other frames may share it
        return recognizer_.size_bytes() + frame_.before.size() + frame_.after.size();
    }

    State start() const { return {recognizer_.start(), 0}; }

    bool step(State & state, uint8_t byte) const {
        if (state.position == frame_.before.size()) {
            if (recognizer_.step(state.value, byte)) {
                return true;
            }
            if (!recognizer_.may_end(state.value) || frame_.after.empty() ||
                byte != static_cast<uint8_t>(frame_.after[0])) {
                return false;
            }
            ++state.position;
            return true;
        }
        const char * next = nullptr;
        if (state.position < frame_.before.size()) {
            next = &frame_.before[state.position];
        } else if (n_after(state) < frame_.after.size()) {
            next = &frame_.after[n_after(state)];
        }
        if (next == nullptr || byte != static_cast<uint8_t>(*next)) {
            return false;
        }
        ++state.position;
        return true;
    }

    bool in_value(const State & state) const { return state.position == frame_.before.size(); }

    // Returns the byte with which the text after the value begins, if there is such a text.
    std::optional<uint8_t> leaving() const {
        return frame_.after.empty() ? std::nullopt : std::optional<uint8_t>(static_cast<uint8_t>(frame_.after[0]));
    }

    // Returns the number of bytes read of the text after the value.
    size_t n_after(const State & state) const {
        return state.position > frame_.before.size() ? state.position - frame_.before.size() : 0;
    }

    // Returns true if the value is complete, even if it could continue.
    bool may_end(const State & state) const {
        return state.position >= frame_.before.size() && (n_after(state) > 0 || recognizer_.may_end(state.value));
    }

    // Returns true if the value is complete and cannot continue.
    bool is_over(const State & state) const {
        if (!may_end(state)) {
            return false;
        }
        for (uint32_t byte = 0; byte < 256 && in_value(state); ++byte) {
            typename Recognizer::State value = state.value;
            if (recognizer_.step(value, static_cast<uint8_t>(byte))) {
                return false;
            }
        }
        return true;
    }

    // Returns true if at most `most` different bytes are allowed next.
    bool is_narrow(const State & state, int32_t most) const {
        for (int32_t byte = 0; byte < 256 && most >= 0; ++byte) {
            State with_byte = state;
            most -= step(with_byte, static_cast<uint8_t>(byte)) ? 1 : 0;
        }
        return most >= 0;
    }

    // Returns the text up to the point where the value is complete or there are two ways to continue.
    ForcedText forced(State state) const {
        ForcedText forced;
        forced.n_before = frame_.before.size() - std::min<size_t>(state.position, frame_.before.size());
        while (!may_end(state)) {
            State next = state;
            int32_t only = -1;
            for (int32_t byte = 0; byte < 256; ++byte) {
                State with_byte = state;
                if (!step(with_byte, static_cast<uint8_t>(byte))) {
                    continue;
                }
                if (only >= 0) {
                    return forced;
                }
                only = byte;
                next = with_byte;
            }
            forced.text += static_cast<char>(only);
            state = next;
        }
        forced.ends_value = is_over(state);
        return forced;
    }

    MaskKey key(const State & state) const {
        MaskKey key = in_value(state) ? recognizer_.key(state.value) : MaskKey{};
        key.low |= uint64_t(state.position) << 32;
        return key;
    }

    // Returns the bytes that complete the value.
    std::string shortest_end(const State & state) const {
        if (n_after(state) > 0) {
            return "";
        }
        return frame_.before.substr(state.position) + recognizer_.shortest_end(state.value);
    }

private:
    Frame frame_;
    const Recognizer & recognizer_;
};

}  // namespace eliza
