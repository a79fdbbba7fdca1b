// A GBNF grammar that is followed with an automaton, whose masks are cached. The destructor returns the automaton to
// the vocabulary's pool. A later generation with the same grammar takes it from there, with its states and masks.
//
// The allowed tokens are the same as with llama.cpp's own sampler, which tries every token at every possible place of
// the grammar. There are two differences. A token whose bytes cannot be continued to valid UTF-8 is not allowed. Where
// the grammar names a token, only that whole token matches, so a token whose text would run past that place is not
// allowed.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "byte_trie/masks.h"
#include "grammar/grammar.h"
#include "grammar/grammar_states.h"
#include "grammar/grammar_vocabulary.h"
#include "grammar/triggers.h"

namespace eliza {

class StatesGrammar final : public Grammar {
public:
    // With triggers, the grammar is lazy: it allows all tokens until a trigger comes. Throws an Error if the text
    // cannot be parsed or has no start rule.
    StatesGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string & gbnf,
                  const GrammarLimits & limits, const std::optional<GrammarTriggers> & triggers = {},
                  const char * start_rule = "root");
    ~StatesGrammar() override;

    bool is_lazy() const override { return triggers_.has_value(); }
    bool is_awake() override;
    bool allows(llama_token token) override;
    SharedMask mask() override;
    void accept(llama_token token) override { accepted_.push_back(token); }
    bool in_step() override;
    void reset() override;

    bool may_end();  // the text is complete here, so end tokens are allowed

    // Returns the rest of the text, if there is only one and it has at most `most` bytes.
    std::optional<std::string> only_rest(size_t most);

    // True if the text is complete after these further bytes.
    bool may_end_after(std::string_view bytes);

private:
    using State = GrammarStates::State;

    void catch_up();
    void wake_or_wait(llama_token token);
    State after(State state, llama_token token, std::string_view text);
    TokenMask compute_mask();
    size_t mask_bytes() const;
    bool is_large() const;
    void forget_if_large();
    GrammarStates & states() const { return *automaton_->states; }

    const std::shared_ptr<const GrammarVocabulary> vocabulary_;
    std::string key_;  // of the automaton in the pool
    std::unique_ptr<GrammarAutomaton> automaton_;
    State state_ = GrammarStates::dead;
    bool has_begun_ = false;

    // Accepted tokens that have not been followed through the grammar yet. Following them may fail and can be retried;
    // accepting a token never fails.
    struct Piece {
        llama_token token;
        std::string text;
    };
    std::deque<llama_token> accepted_;
    std::deque<Piece> pieces_;

    std::optional<TriggerWatch> triggers_;
    bool waits_;
    std::vector<Piece> heard_;  // tokens seen while waiting for a trigger
};

}  // namespace eliza
