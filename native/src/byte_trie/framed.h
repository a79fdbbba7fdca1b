// A recognizer of a value between two known texts.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "byte_trie/recognizer.h"

namespace eliza {

// Where the value can go on with a byte and the text behind it begins with the same one, the value
// goes on.
template <typename Recognizer>
class Framed {
public:
    struct State {
        typename Recognizer::State value;
        uint32_t position = 0;  // in `before`, then at its end while the value lasts, then beyond it
        bool operator==(const State & other) const { return value == other.value && position == other.position; }
    };

    Framed(std::string before, Recognizer recognizer, std::string after)
        : before_(std::move(before)), recognizer_(std::move(recognizer)), after_(std::move(after)) {}

    const Recognizer & recognizer() const { return recognizer_; }

    State start() const { return {recognizer_.start(), 0}; }

    bool step(State & state, uint8_t byte) const {
        if (state.position == before_.size()) {
            if (recognizer_.step(state.value, byte)) {
                return true;
            }
            if (!recognizer_.may_end(state.value) || after_.empty() || byte != static_cast<uint8_t>(after_[0])) {
                return false;
            }
            ++state.position;
            return true;
        }
        const char * next = nullptr;
        if (state.position < before_.size()) {
            next = &before_[state.position];
        } else if (n_after(state) < after_.size()) {
            next = &after_[n_after(state)];
        }
        if (next == nullptr || byte != static_cast<uint8_t>(*next)) {
            return false;
        }
        ++state.position;
        return true;
    }

    bool in_value(const State & state) const { return state.position == before_.size(); }

    // How many bytes of the text behind the value were read.
    size_t n_after(const State & state) const {
        return state.position > before_.size() ? state.position - before_.size() : 0;
    }

    // The value is complete, whether or not it could go on.
    bool may_end(const State & state) const {
        return state.position >= before_.size() && (n_after(state) > 0 || recognizer_.may_end(state.value));
    }

    // The value is complete and cannot go on.
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

    MaskKey key(const State & state) const {
        MaskKey key = in_value(state) ? recognizer_.key(state.value) : MaskKey{};
        key.low |= uint64_t(state.position) << 32;
        return key;
    }

    // Bytes that complete the value.
    std::string shortest_end(const State & state) const {
        if (n_after(state) > 0) {
            return "";
        }
        return before_.substr(state.position) + recognizer_.shortest_end(state.value);
    }

private:
    std::string before_;
    Recognizer recognizer_;
    std::string after_;
};

}  // namespace eliza
