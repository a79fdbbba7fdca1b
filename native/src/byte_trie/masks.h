// The legal tokens in each state of a recognizer, computed when first asked for and kept.
//
// A mask is a walk over the whole vocabulary, and inside a string nearly all of it is legal: the walk
// skips nothing. But of these tokens only those that leave the string depend on what is around it. So
// the mask of the inside is computed once, and for each place only the tokens with a closing quote are
// walked. The same holds for a value and the text behind it.
#pragma once

#include <array>
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
};
using SharedMask = std::shared_ptr<const TokenMask>;

// The tries of a vocabulary. Safe from any thread.
class Vocabulary {
public:
    explicit Vocabulary(ByteTrie all) : all_(std::move(all)) {}

    const ByteTrie & all() const { return all_; }

    // Of the tokens that have this byte somewhere; built when first asked for.
    const ByteTrie & with_byte(uint8_t byte) const;

private:
    ByteTrie all_;
    mutable std::mutex mutex_;
    mutable std::array<std::unique_ptr<const ByteTrie>, 256> with_byte_;
};

template <typename Recognizer>
void add_legal(const ByteTrie & trie, const Recognizer & recognizer, const typename Recognizer::State & state,
               TokenSet & legal) {
    RecognizerStack<Recognizer> stack(recognizer, state, trie.longest_text());
    trie.add_allowed(stack, legal);
}

// Masks by their keys, least recently used ones forgotten: at 262k tokens one is 32 KiB.
class MaskCache {
public:
    template <typename Compute>
    SharedMask get(const MaskKey & key, const Compute & compute) const {
        return masks_.get(key, [&] { return std::make_shared<const TokenMask>(compute()); });
    }

private:
    struct Hash {
        size_t operator()(const MaskKey & key) const {
            // Odd constants spread neighbouring states.
            return static_cast<size_t>((key.high * 0x9e3779b97f4a7c15u) ^ (key.low * 0xc2b2ae3d27d4eb4fu));
        }
    };
    static constexpr size_t capacity = 256;

    mutable LruCache<MaskKey, TokenMask, MaskKey, Hash> masks_{capacity};
};

// ---- Sources of masks: recognizer() and mask(state), safe from any thread --------------------------

class DfaMasks {
public:
    using Recognizer = Dfa;

    DfaMasks(std::shared_ptr<const Vocabulary> vocabulary, Dfa dfa)
        : vocabulary_(std::move(vocabulary)), dfa_(std::move(dfa)) {}

    const Dfa & recognizer() const { return dfa_; }
    SharedMask mask(Dfa::State state) const {
        return cache_.get(dfa_.key(state), [&] {
            TokenSet legal(vocabulary_->all().n_vocab());
            add_legal(vocabulary_->all(), dfa_, state, legal);
            return legal;
        });
    }

private:
    std::shared_ptr<const Vocabulary> vocabulary_;
    Dfa dfa_;
    MaskCache cache_;
};

class JsonMasks {
public:
    using Recognizer = JsonRecognizer;

    // `strings` are those of json_string_body_dfa().
    JsonMasks(std::shared_ptr<const Vocabulary> vocabulary, JsonRecognizer json,
              std::shared_ptr<const DfaMasks> strings)
        : vocabulary_(std::move(vocabulary)), json_(std::move(json)), strings_(std::move(strings)) {}

    const JsonRecognizer & recognizer() const { return json_; }
    SharedMask mask(const JsonRecognizer::State & state) const {
        return cache_.get(json_.key(state), [&] {
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
    JsonRecognizer json_;
    std::shared_ptr<const DfaMasks> strings_;
    MaskCache cache_;
};

// Of a value between two known texts; the value's own masks may serve several frames.
template <typename Source>
class FramedMasks {
public:
    using Recognizer = Framed<typename Source::Recognizer>;

    FramedMasks(std::shared_ptr<const Vocabulary> vocabulary, std::shared_ptr<const Source> source, Frame frame)
        : vocabulary_(std::move(vocabulary)),
          source_(std::move(source)),
          framed_(std::move(frame), source_->recognizer()) {}

    const Recognizer & recognizer() const { return framed_; }
    const Vocabulary & vocabulary() const { return *vocabulary_; }

    SharedMask mask(const typename Recognizer::State & state) const {
        if (framed_.in_value(state) && framed_.frame().after.empty()) {
            return source_->mask(state.value);
        }
        return cache_.get(framed_.key(state), [&] {
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
    std::shared_ptr<const Source> source_;
    Recognizer framed_;
    MaskCache cache_;
};

}  // namespace eliza
