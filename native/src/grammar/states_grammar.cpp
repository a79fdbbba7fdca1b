#include "grammar/states_grammar.h"

#include <algorithm>
#include <utility>

#include "error.h"

namespace eliza {
namespace {

// An adapter of GrammarStates for a walk over the vocabulary; see byte_trie/recognizer.h.
struct StatesRecognizer {
    using State = GrammarStates::State;

    bool step(State & state, uint8_t byte) const {
        const State next = states.step(state, byte);
        if (next == GrammarStates::dead) {
            return false;
        }
        state = next;
        return true;
    }

    GrammarStates & states;
};

void check_trigger_tokens(const std::vector<llama_token> & tokens, size_t n_vocab) {
    for (const llama_token token : tokens) {
        if (static_cast<size_t>(token) >= n_vocab) {
            throw invalid_argument("grammar_triggers: token " + std::to_string(token) +
                                   " is outside the vocabulary of " + std::to_string(n_vocab));
        }
    }
}

}  // namespace

StatesGrammar::StatesGrammar(std::shared_ptr<const GrammarVocabulary> vocabulary, const std::string & gbnf,
                             const GrammarLimits & limits, const std::optional<GrammarTriggers> & triggers,
                             const char * start_rule)
    : vocabulary_(std::move(vocabulary)), key_(start_rule + ('\n' + gbnf)), waits_(triggers.has_value()) {
    if (triggers) {
        check_trigger_tokens(triggers->tokens, vocabulary_->n_vocab());
        triggers_.emplace(*triggers);
    }
    automaton_ = vocabulary_->automata().take(key_);
    if (automaton_ != nullptr) {
        states().set_limits(limits);
    } else {
        auto rules = std::make_shared<const GrammarRules>(
            parse_gbnf(vocabulary_->vocab(), vocabulary_->n_vocab(), gbnf, start_rule));
        automaton_ = std::make_unique<GrammarAutomaton>();
        automaton_->states = std::make_unique<GrammarStates>(std::move(rules), limits);
    }
}

StatesGrammar::~StatesGrammar() {
    if (states().has_exceeded_limit() || is_large()) {
        return;
    }
    states().set_limits({});
    const size_t n_bytes = states().n_bytes() + mask_bytes() + key_.size();
    vocabulary_->automata().give_back(std::move(key_), std::move(automaton_), n_bytes);
}

void StatesGrammar::reset() {
    accepted_.clear();
    pieces_.clear();
    has_begun_ = false;
    waits_ = is_lazy();
    if (triggers_) {
        triggers_->reset();
    }
    heard_.clear();
}

// ---- following the text --------------------------------------------------------------------------

void StatesGrammar::catch_up() {
    if (has_begun_) {
        forget_if_large();  // an interrupted computation may also have left many states
    }
    states().begin_token();
    if (!has_begun_) {
        state_ = states().start();
        if (state_ == GrammarStates::dead) {
            throw invalid_argument("gbnf_grammar: the grammar matches no text");
        }
        has_begun_ = true;
    }
    while (!pieces_.empty() || !accepted_.empty()) {
        if (pieces_.empty()) {
            const llama_token token = accepted_.front();
            if (waits_) {
                wake_or_wait(token);
            } else {
                pieces_.push_back({token, std::string(vocabulary_->text(token))});
            }
            accepted_.pop_front();
            continue;
        }
        const Piece & piece = pieces_.front();
        if (vocabulary_->is_end(piece.token)) {
            state_ = states().may_end(state_) ? state_ : GrammarStates::dead;
        } else {
            state_ = after(state_, piece.token, piece.text);
        }
        pieces_.pop_front();
        forget_if_large();
        states().begin_token();
    }
}

// Changes the state completely, or not at all if memory runs out.
void StatesGrammar::wake_or_wait(llama_token token) {
    Piece heard{token, std::string(vocabulary_->text(token))};
    TriggerWatch watch = *triggers_;
    const std::optional<size_t> begin = watch.feed(heard.text);
    std::deque<Piece> pieces;
    if (watch.is_trigger(token)) {
        pieces.push_back(std::move(heard));
    } else if (begin) {
        // The text of the grammar may begin inside a token, and several tokens before this one.
        size_t token_begin = 0;
        const auto add_end = [&](const Piece & piece) {
            const size_t token_end = token_begin + piece.text.size();
            if (token_end > *begin) {
                pieces.push_back({piece.token, piece.text.substr(std::max(token_begin, *begin) - token_begin)});
            }
            token_begin = token_end;
        };
        std::for_each(heard_.begin(), heard_.end(), add_end);
        add_end(heard);
    } else {
        heard_.push_back(std::move(heard));
        triggers_.emplace(std::move(watch));
        return;
    }
    pieces_.swap(pieces);
    waits_ = false;
    heard_.clear();
}

StatesGrammar::State StatesGrammar::after(State state, llama_token token, std::string_view text) {
    if (text.empty()) {
        return GrammarStates::dead;
    }
    State by_text = state;
    for (size_t i = 0; i < text.size() && by_text != GrammarStates::dead; ++i) {
        by_text = states().step(by_text, static_cast<uint8_t>(text[i]));
    }
    const State by_name = states().step_by_token(state, token);
    return by_name == GrammarStates::dead ? by_text : states().either(by_text, by_name);
}

size_t StatesGrammar::mask_bytes() const { return automaton_->masks.size() * (vocabulary_->n_vocab() / 8); }

bool StatesGrammar::is_large() const { return states().is_large(mask_bytes()); }

void StatesGrammar::forget_if_large() {
    if (is_large()) {
        std::unique_ptr<GrammarStates> fresh = states().fresh();
        fresh->begin_token();
        state_ = fresh->adopt(states(), state_);
        automaton_->states = std::move(fresh);
        automaton_->masks.clear();
    }
}

// ---- queries --------------------------------------------------------------------------------------

bool StatesGrammar::is_awake() {
    catch_up();
    return !waits_;
}

bool StatesGrammar::in_step() { return !is_awake() || state_ != GrammarStates::dead; }

bool StatesGrammar::may_end() { return is_awake() && states().may_end(state_); }

std::optional<std::string> StatesGrammar::only_rest(size_t most) {
    if (!is_awake()) {
        return std::nullopt;
    }
    std::string rest;
    for (State state = state_; !states().may_end(state) || states().may_go_on(state);) {
        bool names_a_token = false;
        states().for_each_token_element(state, [&](llama_token, bool) { names_a_token = true; });
        if (rest.size() == most || states().may_end(state) || names_a_token) {
            return std::nullopt;
        }
        State next = GrammarStates::dead;
        for (int32_t byte = 0; byte < 256; ++byte) {
            const State with_byte = states().step(state, static_cast<uint8_t>(byte));
            if (with_byte == GrammarStates::dead) {
                continue;
            }
            if (next != GrammarStates::dead) {
                return std::nullopt;
            }
            next = with_byte;
            rest += static_cast<char>(byte);
        }
        if (next == GrammarStates::dead) {
            return std::nullopt;
        }
        state = next;
    }
    return rest;
}

bool StatesGrammar::may_end_after(std::string_view bytes) {
    State state = is_awake() ? state_ : GrammarStates::dead;
    for (size_t i = 0; i < bytes.size() && state != GrammarStates::dead; ++i) {
        state = states().step(state, static_cast<uint8_t>(bytes[i]));
    }
    return state != GrammarStates::dead && states().may_end(state);
}

bool StatesGrammar::allows(llama_token token) {
    if (!is_awake()) {
        return true;
    }
    if (vocabulary_->is_end(token)) {
        return states().may_end(state_);
    }
    return after(state_, token, vocabulary_->text(token)) != GrammarStates::dead;
}

SharedMask StatesGrammar::mask() {
    catch_up();
    SharedMask & known = automaton_->masks[state_];
    if (known == nullptr) {
        known = std::make_shared<const TokenMask>(compute_mask());
    }
    return known;
}

TokenMask StatesGrammar::compute_mask() {
    TokenSet legal(vocabulary_->n_vocab());
    for (const ByteTrie * trie : {&vocabulary_->texts(), vocabulary_->controls()}) {
        if (trie != nullptr) {
            add_legal(*trie, StatesRecognizer{states()}, state_, legal);
        }
    }
    const auto add = [&](llama_token token) {
        if (!vocabulary_->text(token).empty()) {
            legal.add(static_cast<size_t>(token));
        }
    };
    std::optional<llama_token> only_left_out;
    bool any_but_one = false, any_at_all = false;
    states().for_each_token_element(state_, [&](llama_token named, bool inverted) {
        if (!inverted) {
            add(named);
            return;
        }
        any_at_all = any_at_all || (any_but_one && only_left_out != named);
        any_but_one = true;
        only_left_out = named;
    });
    const auto n_vocab = static_cast<llama_token>(any_but_one ? vocabulary_->n_vocab() : 0);
    for (llama_token token = 0; token < n_vocab; ++token) {
        if (any_at_all || token != only_left_out) {
            add(token);
        }
    }
    if (states().may_end(state_)) {
        for (const llama_token end : vocabulary_->ends()) {
            legal.add(static_cast<size_t>(end));
        }
    }
    return TokenMask(std::move(legal));
}

}  // namespace eliza
