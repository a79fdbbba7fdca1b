// A GBNF grammar, followed by the states of an automaton, whose legal tokens are kept.
//
// They are those of llama.cpp's own sampler, which tries every token in every place of the grammar where the text may
// be. What differs: no token is legal whose bytes cannot go on to be UTF-8, nor one whose text would have to go on
// where the grammar names a token.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "byte_trie/masks.h"
#include "grammar/grammar.h"
#include "grammar/grammar_states.h"
#include "grammar/grammar_vocabulary.h"
#include "grammar/triggers.h"

namespace eliza {

class StatesGrammar final : public Grammar {
public:
    // Throws Error when the text does not parse or has no start rule.
    StatesGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string & gbnf,
                  const GrammarLimits & limits, const std::optional<GrammarTriggers> & triggers = {},
                  const char * start_rule = "root");

    bool is_lazy() const override { return triggers_.has_value(); }
    bool is_awake() override;
    bool allows(llama_token token) override;
    SharedMask mask() override;
    void accept(llama_token token) override { accepted_.push_back(token); }
    bool in_step() override;
    void reset() override;

    bool may_end();    // here, so that end tokens are legal
    bool may_go_on();  // with a token that is none

private:
    using State = GrammarStates::State;

    void catch_up();
    void wake_or_wait(llama_token token);
    State after(State state, llama_token token, std::string_view text);
    TokenMask compute_mask();
    void forget_if_large();

    const std::shared_ptr<const GrammarVocabulary> vocabulary_;
    std::unique_ptr<GrammarStates> states_;
    std::unordered_map<State, SharedMask> masks_;
    State state_ = GrammarStates::dead;
    bool has_begun_ = false;

    // What was accepted and not followed yet: accepting never fails, and what does can be tried again.
    struct Piece {
        llama_token token;
        std::string text;
    };
    std::deque<llama_token> accepted_;
    std::deque<Piece> pieces_;

    std::optional<TriggerWatch> triggers_;
    bool waits_;
    std::vector<Piece> heard_;  // while waiting
};

}  // namespace eliza
