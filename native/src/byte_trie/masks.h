// The legal tokens in each state of a recognizer, computed when first asked for and kept.
//
// A mask is a walk over the whole vocabulary, and inside a string nearly all of it is legal: the walk
// skips nothing. But of these tokens only those that leave the string depend on what is around it. So
// the mask of the inside is computed once, and for each place only the tokens with a closing quote are
// walked. The same holds for a value and the text behind it.
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
    Token only;  // the single one, where there is no other; else -1

    size_t size_bytes() const { return tokens.n_vocab() / 8 + sizeof *this; }
};
using SharedMask = std::shared_ptr<const TokenMask>;

// The masks of one vocabulary, whatever recognizer they are of. The least recently used are forgotten:
// at 262k tokens one is 32 KiB. Safe from any thread.
class MaskCache {
public:
    MaskCache() : masks_(most_entries, most_bytes) {}

    // What `compute()` returns, kept under the recognizer's number and its state's key.
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
        size_t size_bytes() const { return 4 * sizeof *this; }  // here, in the index, and what holds them
    };
    struct Hash {
        size_t operator()(const Key & key) const {
            // Odd constants spread neighbouring states.
            return static_cast<size_t>((key.state.high * 0x9e3779b97f4a7c15u) ^ (key.state.low * 0xc2b2ae3d27d4eb4fu) ^
                                       (key.recognizer * 0xff51afd7ed558ccdu));
        }
    };
    static constexpr size_t most_bytes = size_t(64) << 20;
    static constexpr size_t most_entries = size_t(1) << 20;

    LruCache<Key, TokenMask, Key, Hash> masks_;
    std::atomic<uint64_t> n_recognizers_{0};
};

// The tries of a vocabulary, and what was computed with them. Safe from any thread.
class Vocabulary {
public:
    explicit Vocabulary(ByteTrie all) : all_(std::move(all)) {}

    const ByteTrie & all() const { return all_; }

    // Of the tokens that have this byte somewhere; built when first asked for.
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

    // States from `first` on that are those of another automaton, which only `leaving` leaves.
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

    // `strings` are those of json_string_body_dfa().
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

// Of a value between two known texts; the value's own masks may serve several frames.
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

    // With the source, which others may hold, too.
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
