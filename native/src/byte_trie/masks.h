// The allowed tokens in each state of a recognizer, computed on first use and cached.
//
// Computing a mask is a walk over the whole vocabulary. Inside a string nearly every token is allowed, so the walk can
// skip nothing. But only the tokens that leave the string depend on its surroundings. Therefore the mask of the
// string's inside is computed once, and for each surrounding state only the tokens that contain a quote are walked. The
// same is done for a value and the text after it.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "byte_trie/byte_trie.h"
#include "byte_trie/framed.h"
#include "byte_trie/json_recognizer.h"
#include "byte_trie/recognizer.h"
#include "lru_cache.h"

namespace eliza {

struct TokenMask {
    explicit TokenMask(TokenSet legal) : tokens(std::move(legal)), only(tokens.only()) {}

    TokenSet tokens;
    Token only;  // the only allowed token, or -1 if there is not exactly one

    size_t size_bytes() const { return tokens.n_vocab() / 8 + sizeof *this; }
};
using SharedMask = std::shared_ptr<const TokenMask>;

// The masks of all recognizers over one vocabulary. The least recently used ones are dropped; with 262k tokens one mask
// has 32 KiB. Safe from any thread.
class MaskCache {
public:
    MaskCache() : masks_(most_entries, most_bytes) {}

    // Returns the result of `compute()`, a SharedMask, cached under the recognizer's number and the key of its state.
    template <typename Compute>
    SharedMask get(uint64_t recognizer, const MaskKey & state, const Compute & compute) {
        return masks_.get({recognizer, state}, compute);
    }
    uint64_t number_of_new_recognizer() { return ++n_recognizers_; }

private:
    struct Key {
        uint64_t recognizer;
        MaskKey state;
        bool operator==(const Key & other) const { return recognizer == other.recognizer && state == other.state; }
        size_t size_bytes() const { return 4 * sizeof *this; }  // in the list, in the index, and their overhead
    };
    struct Hash {
        size_t operator()(const Key & key) const {
            // Odd multipliers spread neighbouring states over the table.
            return static_cast<size_t>((key.state.high * 0x9e3779b97f4a7c15u) ^ (key.state.low * 0xc2b2ae3d27d4eb4fu) ^
                                       (key.recognizer * 0xff51afd7ed558ccdu));
        }
    };
    static constexpr size_t most_bytes = size_t(64) << 20;
    static constexpr size_t most_entries = size_t(1) << 20;

    LruCache<Key, TokenMask, Key, Hash> masks_;
    std::atomic<uint64_t> n_recognizers_{0};
};

// The tries of a vocabulary and the masks computed with them. Safe from any thread.
class Vocabulary {
public:
    explicit Vocabulary(ByteTrie all) : all_(std::move(all)) {}

    const ByteTrie & all() const { return all_; }

    // Returns the trie of the tokens that contain this byte, built on first use.
    const ByteTrie & with_byte(uint8_t byte) const;

    MaskCache & masks() const { return masks_; }

private:
    ByteTrie all_;
    mutable MaskCache masks_;
    mutable std::mutex mutex_;
    mutable std::array<std::unique_ptr<const ByteTrie>, 256> with_byte_;
};

template <typename Recognizer>
void add_legal(const ByteTrie & trie, const Recognizer & recognizer, const typename Recognizer::State & state,
               TokenSet & legal) {
    RecognizerStack<Recognizer> stack(recognizer, state, trie.longest_text());
    trie.add_allowed(stack, legal);
}

// The masks of one recognizer. Safe from any thread.
template <typename R>
class Masks {
public:
    using Recognizer = R;
    using State = typename R::State;

    // The mask of another recognizer that a state is inside of.
    struct Inside {
        SharedMask mask;
        std::optional<uint8_t> leaving;  // the only byte that leaves the other recognizer; none if no byte does
    };
    using FindInside = std::function<std::optional<Inside>(const Recognizer &, const State &)>;

    Masks(std::shared_ptr<const Vocabulary> vocabulary, Recognizer recognizer, FindInside find_inside = {})
        : vocabulary_(std::move(vocabulary)),
          number_(vocabulary_->masks().number_of_new_recognizer()),
          recognizer_(std::move(recognizer)),
          find_inside_(std::move(find_inside)) {}

    const Recognizer & recognizer() const { return recognizer_; }
    const Vocabulary & vocabulary() const { return *vocabulary_; }
    size_t size_bytes() const { return recognizer_.size_bytes() + sizeof *this; }

    SharedMask mask(const State & state) const {
        return vocabulary_->masks().get(number_, recognizer_.key(state), [&]() -> SharedMask {
            const auto inside = find_inside_ ? find_inside_(recognizer_, state) : std::nullopt;
            if (inside && !inside->leaving) {
                return inside->mask;
            }
            TokenSet legal = inside ? inside->mask->tokens : TokenSet(vocabulary_->all().n_vocab());
            add_legal(inside ? vocabulary_->with_byte(*inside->leaving) : vocabulary_->all(), recognizer_, state,
                      legal);
            return std::make_shared<const TokenMask>(std::move(legal));
        });
    }

private:
    std::shared_ptr<const Vocabulary> vocabulary_;
    const uint64_t number_;
    Recognizer recognizer_;
    FindInside find_inside_;
};

using DfaMasks = Masks<Dfa>;
using JsonMasks = Masks<JsonRecognizer>;
template <typename Source>
using FramedMasks = Masks<Framed<typename Source::Recognizer>>;

// Both take the masks of json_string_body_dfa().
std::shared_ptr<const DfaMasks> json_string_masks(const std::shared_ptr<const Vocabulary> & vocabulary,
                                                  const std::shared_ptr<const DfaMasks> & bodies);
std::shared_ptr<const JsonMasks> json_masks(const std::shared_ptr<const Vocabulary> & vocabulary, JsonRecognizer json,
                                            const std::shared_ptr<const DfaMasks> & bodies);

// Masks for a value with fixed text before and after it. Several frames may share the value's own masks.
template <typename Source>
std::shared_ptr<const FramedMasks<Source>> framed_masks(const std::shared_ptr<const Vocabulary> & vocabulary,
                                                        const std::shared_ptr<const Source> & source,
                                                        const Frame & frame) {
    using All = FramedMasks<Source>;
    const auto find = [source](const typename All::Recognizer & framed, const typename All::State & state) {
        std::optional<typename All::Inside> inside;
        if (framed.in_value(state)) {
            inside = {source->mask(state.value), framed.leaving()};
        }
        return inside;
    };
    return std::make_shared<const All>(vocabulary, typename All::Recognizer(frame, source->recognizer()), find);
}

}  // namespace eliza
