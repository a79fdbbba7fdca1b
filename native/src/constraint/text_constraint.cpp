#include "constraint/text_constraint.h"

#include <type_traits>
#include <utility>

namespace eliza {
namespace {

template <typename Masks>
class MaskedConstraint : public TextConstraint {
public:
    explicit MaskedConstraint(std::shared_ptr<const Masks> masks)
        : masks_(std::move(masks)), state_(recognizer().start()) {}

    bool allows(Token token) const override {
        const std::string_view text = text_of(token);
        auto state = state_;
        for (const char byte : text) {
            if (!recognizer().step(state, static_cast<uint8_t>(byte))) {
                return false;
            }
        }
        return !text.empty();
    }
    SharedMask mask() override { return masks_->mask(state_); }
    void accept(Token token) override {
        for (const char byte : text_of(token)) {
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
    ForcedText forced() const override {
        // The model chooses how a JSON value is split into tokens, as with llama.cpp's JSON grammar.
        if constexpr (std::is_same_v<Masks, FramedMasks<JsonMasks>>) {
            return {};
        }
        return recognizer().forced(state_);
    }
    bool is_narrow() const override { return recognizer().is_narrow(state_, /*most=*/16); }
    std::string shortest_end() const override { return recognizer().shortest_end(state_); }

private:
    const typename Masks::Recognizer & recognizer() const { return masks_->recognizer(); }
    std::string_view text_of(Token token) const { return masks_->vocabulary().all().text(token); }

    std::shared_ptr<const Masks> masks_;
    typename Masks::Recognizer::State state_;
};

template <typename Masks>
std::shared_ptr<const TextConstraintKind> kind_of(const std::shared_ptr<const Masks> & masks) {
    return std::make_shared<const TextConstraintKind>(
        TextConstraintKind{[masks] { return std::make_unique<MaskedConstraint<Masks>>(masks); }, masks->size_bytes()});
}

}  // namespace

std::shared_ptr<const TextConstraintKind> dfa_constraint(const std::shared_ptr<const FramedMasks<DfaMasks>> & masks) {
    return kind_of(masks);
}

std::shared_ptr<const TextConstraintKind> json_constraint(const std::shared_ptr<const FramedMasks<JsonMasks>> & masks) {
    return kind_of(masks);
}

}  // namespace eliza
