#include "constraint/text_constraint.h"

#include <utility>

#include "byte_trie/framed.h"
#include "lru_cache.h"

namespace eliza {
namespace {

// At 262k tokens one mask is 32 KiB.
constexpr size_t masks_kept = 256;

struct MaskKeyHash {
    size_t operator()(const MaskKey & key) const {
        // Odd constants spread neighbouring states.
        return static_cast<size_t>((key.high * 0x9e3779b97f4a7c15u) ^ (key.low * 0xc2b2ae3d27d4eb4fu));
    }
};

template <typename Recognizer>
class Kind : public TextConstraintKind, public std::enable_shared_from_this<Kind<Recognizer>> {
public:
    using State = typename Framed<Recognizer>::State;

    Kind(std::shared_ptr<const ByteTrie> vocabulary, Frame frame, Recognizer recognizer)
        : vocabulary_(std::move(vocabulary)),
          recognizer_(std::move(frame.before), std::move(recognizer), std::move(frame.after)) {}

    std::unique_ptr<TextConstraint> begin() const override;

    const Framed<Recognizer> & recognizer() const { return recognizer_; }
    const ByteTrie & vocabulary() const { return *vocabulary_; }

    std::shared_ptr<const TokenMask> mask(const State & state) const {
        return masks_.get(recognizer_.key(state), [&] {
            auto mask = std::make_shared<TokenMask>(vocabulary_->n_vocab());
            RecognizerStack<Framed<Recognizer>> stack(recognizer_, state, vocabulary_->longest_text());
            vocabulary_->add_allowed(stack, mask->tokens);
            mask->only = mask->tokens.only();
            return mask;
        });
    }

private:
    std::shared_ptr<const ByteTrie> vocabulary_;
    Framed<Recognizer> recognizer_;
    mutable LruCache<MaskKey, TokenMask, MaskKey, MaskKeyHash> masks_{masks_kept};
};

template <typename Recognizer>
class RecognizerConstraint : public TextConstraint {
public:
    explicit RecognizerConstraint(std::shared_ptr<const Kind<Recognizer>> kind)
        : kind_(std::move(kind)), state_(recognizer().start()) {}

    bool allows(Token token) const override {
        const std::string_view text = kind_->vocabulary().text(token);
        auto state = state_;
        for (const char byte : text) {
            if (!recognizer().step(state, static_cast<uint8_t>(byte))) {
                return false;
            }
        }
        return !text.empty();
    }
    std::shared_ptr<const TokenMask> mask() override { return kind_->mask(state_); }
    void accept(Token token) override {
        for (const char byte : kind_->vocabulary().text(token)) {
            const bool was_in_value = recognizer().in_value(state_);
            recognizer().step(state_, static_cast<uint8_t>(byte));
            if (was_in_value && recognizer().in_value(state_)) {
                value_ += byte;
            }
        }
    }
    bool may_end() const override { return recognizer().may_end(state_); }
    bool is_over() const override { return recognizer().is_over(state_); }
    bool before_value() const override { return !recognizer().in_value(state_) && !may_end(); }
    size_t n_after() const override { return recognizer().n_after(state_); }
    std::string shortest_end() const override { return recognizer().shortest_end(state_); }

private:
    const Framed<Recognizer> & recognizer() const { return kind_->recognizer(); }

    std::shared_ptr<const Kind<Recognizer>> kind_;
    typename Framed<Recognizer>::State state_;
};

template <typename Recognizer>
std::unique_ptr<TextConstraint> Kind<Recognizer>::begin() const {
    return std::make_unique<RecognizerConstraint<Recognizer>>(this->shared_from_this());
}

}  // namespace

std::shared_ptr<const TextConstraintKind> dfa_constraint(std::shared_ptr<const ByteTrie> vocabulary, Frame frame,
                                                         Dfa dfa) {
    return std::make_shared<const Kind<Dfa>>(std::move(vocabulary), std::move(frame), std::move(dfa));
}

std::shared_ptr<const TextConstraintKind> json_constraint(std::shared_ptr<const ByteTrie> vocabulary, Frame frame,
                                                          JsonRecognizer recognizer) {
    return std::make_shared<const Kind<JsonRecognizer>>(std::move(vocabulary), std::move(frame), std::move(recognizer));
}

}  // namespace eliza
