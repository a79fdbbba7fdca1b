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
#include <memory>
#include <mutex>
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

    // Returns the result of `compute()`, cached under the recognizer's number and the key of its state.
    template <typename Compute>
    SharedMask get(uint64_t recognizer, const MaskKey & state, const Compute & compute) {
        return masks_.get({recognizer, state}, [&] { return std::make_shared<const TokenMask>(compute()); });
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

// ---- Sources of masks: recognizer() and mask(state), safe from any thread --------------------------

class DfaMasks {
public:
    using Recognizer = Dfa;

    // The states from `first` on are the states of another automaton. Only the byte `leaving` leaves them.
    struct Inside {
        std::shared_ptr<const DfaMasks> masks;
        Dfa::State first;
        uint8_t leaving;
    };

    DfaMasks(std::shared_ptr<const Vocabulary> vocabulary, Dfa dfa)
        : DfaMasks(std::move(vocabulary), std::move(dfa), Inside{nullptr, 0, 0}) {}
    DfaMasks(std::shared_ptr<const Vocabulary> vocabulary, Dfa dfa, Inside inside)
        : vocabulary_(std::move(vocabulary)),
          number_(vocabulary_->masks().number_of_new_recognizer()),
          dfa_(std::move(dfa)),
          inside_(std::move(inside)) {}

    const Dfa & recognizer() const { return dfa_; }
    size_t size_bytes() const { return dfa_.size_bytes() + sizeof *this; }
    SharedMask mask(Dfa::State state) const {
        return vocabulary_->masks().get(number_, dfa_.key(state), [&] {
            if (is_inside(state)) {
                TokenSet legal = inside_.masks->mask(state - inside_.first)->tokens;
                add_legal(vocabulary_->with_byte(inside_.leaving), dfa_, state, legal);
                return legal;
            }
            TokenSet legal(vocabulary_->all().n_vocab());
            add_legal(vocabulary_->all(), dfa_, state, legal);
            return legal;
        });
    }

private:
    bool is_inside(Dfa::State state) const {
        return inside_.masks != nullptr && state >= inside_.first &&
               state - inside_.first < inside_.masks->recognizer().n_states();
    }

    std::shared_ptr<const Vocabulary> vocabulary_;
    const uint64_t number_;
    Dfa dfa_;
    Inside inside_;
};

class JsonMasks {
public:
    using Recognizer = JsonRecognizer;

    // `strings` are the masks of json_string_body_dfa().
    JsonMasks(std::shared_ptr<const Vocabulary> vocabulary, JsonRecognizer json,
              std::shared_ptr<const DfaMasks> strings)
        : vocabulary_(std::move(vocabulary)),
          number_(vocabulary_->masks().number_of_new_recognizer()),
          json_(std::move(json)),
          strings_(std::move(strings)) {}

    const JsonRecognizer & recognizer() const { return json_; }
    size_t size_bytes() const { return json_.size_bytes() + sizeof *this; }
    SharedMask mask(const JsonRecognizer::State & state) const {
        return vocabulary_->masks().get(number_, json_.key(state), [&] {
            if (const auto inside = json_.inside_string(state)) {
                TokenSet legal = strings_->mask(*inside)->tokens;
                add_legal(vocabulary_->with_byte('"'), json_, state, legal);
                return legal;
            }
            TokenSet legal(vocabulary_->all().n_vocab());
            add_legal(vocabulary_->all(), json_, state, legal);
            return legal;
        });
    }

private:
    std::shared_ptr<const Vocabulary> vocabulary_;
    const uint64_t number_;
    JsonRecognizer json_;
    std::shared_ptr<const DfaMasks> strings_;
};

// Masks for a value with fixed text before and after it. Several frames may share the value's own masks.
template <typename Source>
class FramedMasks {
public:
    using Recognizer = Framed<typename Source::Recognizer>;

    FramedMasks(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<const Source> source, Frame frame)
        : vocabulary_(std::move(vocabulary)),
          number_(vocabulary_->masks().number_of_new_recognizer()),
          source_(std::move(source)),
          framed_(std::move(frame), source_->recognizer()) {}

    const Recognizer & recognizer() const { return framed_; }

    // Includes the source, although other frames may share it.
    size_t size_bytes() const {
        return source_->size_bytes() + framed_.frame().before.size() + framed_.frame().after.size() + sizeof *this;
    }
    const Vocabulary & vocabulary() const { return *vocabulary_; }

    SharedMask mask(const typename Recognizer::State & state) const {
        if (framed_.in_value(state) && framed_.frame().after.empty()) {
            return source_->mask(state.value);
        }
        return vocabulary_->masks().get(number_, framed_.key(state), [&] {
            if (framed_.in_value(state)) {
                TokenSet legal = source_->mask(state.value)->tokens;
                const auto first_behind = static_cast<uint8_t>(framed_.frame().after[0]);
                add_legal(vocabulary_->with_byte(first_behind), framed_, state, legal);
                return legal;
            }
            TokenSet legal(vocabulary_->all().n_vocab());
            add_legal(vocabulary_->all(), framed_, state, legal);
            return legal;
        });
    }

private:
    std::shared_ptr<const Vocabulary> vocabulary_;
    const uint64_t number_;
    std::shared_ptr<const Source> source_;
    Recognizer framed_;
};

}  // namespace eliza
