#include "grammar/grammar_states.h"

#include <algorithm>

#include "error.h"

namespace eliza {
namespace {

using Kind = GrammarRules::Kind;

uint64_t pair_key(uint32_t high, uint32_t low) { return uint64_t(high) << 32 | low; }

}  // namespace

GrammarStates::GrammarStates(std::shared_ptr<const GrammarRules> rules, GrammarLimits limits)
    : rules_(std::move(rules)),
      limits_(std::move(limits)),
      column_(rules_->characters.bytes_told_apart()),
      n_columns_(size_t(column_[255]) + 1),
      next_(n_columns_, dead),
      states_(1, {0, 0, false, false}),
      frames_(1, {0, 0}) {}

void GrammarStates::begin_token() {
    n_steps_left_ = limits_.n_steps;
    n_bytes_before_ = n_bytes();
}

void GrammarStates::count_step() {
    constexpr int64_t between_checkpoints = 1 << 12;
    if (--n_steps_left_ < 0) {
        has_exceeded_limit_ = true;
        throw invalid_argument("gbnf_grammar: the next token takes more than " + std::to_string(limits_.n_steps) +
                               " steps through the grammar (option grammar_budget): the grammar is too ambiguous here");
    }
    if (n_steps_left_ % between_checkpoints == 0) {
        check_bytes();
        if (limits_.checkpoint) {
            limits_.checkpoint();
        }
    }
}

size_t GrammarStates::n_bytes() const {
    constexpr size_t hashed = 40;  // approximate size of a hash table entry
    return next_.size() * sizeof(State) + states_.size() * (sizeof(StateInfo) + hashed) +
           places_.size() * sizeof(Place) + frames_.size() * (sizeof(Frame) + hashed) + followed_.size() * hashed +
           found_.size() * sizeof(Place) + to_follow_.size() * sizeof(Frame);
}

void GrammarStates::check_bytes() {
    if (n_bytes() > n_bytes_before_ + limits_.n_bytes) {
        has_exceeded_limit_ = true;
        throw invalid_argument(
            "gbnf_grammar: the grammar is too ambiguous: the states for the next token need more than " +
            std::to_string(limits_.n_bytes >> 20) + " MiB");
    }
}

uint32_t GrammarStates::pushed(uint32_t element, uint32_t stack) {
    const uint64_t key = pair_key(element, stack);
    if (const auto known = stack_of_.find(key); known != stack_of_.end()) {
        return known->second;
    }
    frames_.push_back({element, stack});
    const auto number = static_cast<uint32_t>(frames_.size() - 1);
    stack_of_.emplace(key, number);
    return number;
}

// Adds to found_ all places reachable from an element that read the next byte or token.
void GrammarStates::follow(uint32_t element, uint32_t stack) {
    const auto go_on_at = [&](uint32_t next, uint32_t below) {
        uint64_t & round = followed_[pair_key(next, below)];
        if (round != round_) {
            round = round_;
            to_follow_.push_back({next, below});
        }
    };
    go_on_at(element, stack);
    while (!to_follow_.empty()) {
        const Frame at = to_follow_.back();
        to_follow_.pop_back();
        count_step();
        const GrammarRules::Element & here = rules_->elements[at.element];
        switch (here.kind) {
            case Kind::character: found_.push_back({at.element, here.value, at.below}); break;
            case Kind::token:
            case Kind::not_token: found_.push_back({at.element, 0, at.below}); break;
            case Kind::end:
                if (at.below == 0) {
                    found_end_ = true;
                } else {
                    const Frame then = frames_[at.below];
                    go_on_at(then.element, then.below);
                }
                break;
            case Kind::rule: {
                // Without a following element there is no push, so that right-recursive lists need no stack.
                const bool is_last = rules_->elements[at.element + 1].kind == Kind::end;
                const uint32_t below = is_last ? at.below : pushed(at.element + 1, at.below);
                for (uint32_t i = rules_->first_of_rule[here.value]; i < rules_->first_of_rule[here.value + 1]; ++i) {
                    go_on_at(rules_->alternatives[i], below);
                }
            }
        }
    }
}

// Returns the state for found_, and creates it if necessary.
GrammarStates::State GrammarStates::intern_found() {
    std::sort(found_.begin(), found_.end());
    found_.erase(std::unique(found_.begin(), found_.end()), found_.end());
    if (found_.empty() && !found_end_) {
        return dead;
    }
    uint64_t hash = found_end_ ? 1 : 0;
    for (const Place & place : found_) {
        for (const uint32_t part : {place.element, place.byte, place.stack}) {
            hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
            hash ^= hash >> 29;
        }
    }
    const auto [begin, end] = states_by_hash_.equal_range(hash);
    for (auto entry = begin; entry != end; ++entry) {
        const StateInfo & known = states_[entry->second];
        if (known.may_end == found_end_ && known.n_places == found_.size() &&
            std::equal(found_.begin(), found_.end(), places_.begin() + known.first_place)) {
            return entry->second;
        }
    }
    const auto state = static_cast<State>(states_.size());
    check_bytes();
    // In this order, nothing refers to missing data, whichever allocation fails.
    const auto first_place = static_cast<uint32_t>(places_.size());
    places_.insert(places_.end(), found_.begin(), found_.end());
    next_.resize((size_t(state) + 1) * n_columns_, unknown);
    const bool names_tokens = std::any_of(found_.begin(), found_.end(), [&](const Place & place) {
        return rules_->elements[place.element].kind != GrammarRules::Kind::character;
    });
    states_.push_back({first_place, static_cast<uint32_t>(found_.size()), found_end_, names_tokens});
    states_by_hash_.emplace(hash, state);
    return state;
}

void GrammarStates::begin_search() {
    found_.clear();
    found_end_ = false;
    to_follow_.clear();
    ++round_;
}

GrammarStates::State GrammarStates::start() {
    begin_search();
    const uint32_t rule = rules_->start_rule;
    for (uint32_t i = rules_->first_of_rule[rule]; i < rules_->first_of_rule[rule + 1]; ++i) {
        follow(rules_->alternatives[i], 0);
    }
    return intern_found();
}

GrammarStates::State GrammarStates::make_step(State state, uint8_t byte) {
    begin_search();
    const StateInfo from = states_[state];
    for (uint32_t i = 0; i < from.n_places; ++i) {
        count_step();
        const Place place = places_[from.first_place + i];
        if (rules_->elements[place.element].kind != GrammarRules::Kind::character) {
            continue;
        }
        const Utf8Classes::Place next = rules_->characters.step(place.byte, byte);
        if (next == Utf8Classes::complete) {
            follow(place.element + 1, place.stack);
        } else if (next != Utf8Classes::none) {
            found_.push_back({place.element, next, place.stack});
        }
    }
    const State next = intern_found();
    next_[state * n_columns_ + column_[byte]] = next;
    return next;
}

GrammarStates::State GrammarStates::step_by_token(State state, int32_t token) {
    const StateInfo from = states_[state];
    if (!from.names_tokens) {
        return dead;
    }
    begin_search();
    for (uint32_t i = 0; i < from.n_places; ++i) {
        count_step();
        const Place place = places_[from.first_place + i];
        const GrammarRules::Element & element = rules_->elements[place.element];
        const bool is_this = element.value == static_cast<uint32_t>(token);
        if ((element.kind == Kind::token && is_this) || (element.kind == Kind::not_token && !is_this)) {
            follow(place.element + 1, place.stack);
        }
    }
    return intern_found();
}

GrammarStates::State GrammarStates::either(State a, State b) {
    begin_search();
    for (const State state : {a, b}) {
        const auto begin = places_.begin() + states_[state].first_place;
        found_.insert(found_.end(), begin, begin + states_[state].n_places);
        found_end_ = found_end_ || states_[state].may_end;
    }
    return intern_found();
}

GrammarStates::State GrammarStates::adopt(const GrammarStates & other, State state) {
    const StateInfo & kept = other.states_[state];
    const auto begin = other.places_.begin() + kept.first_place;
    std::vector<Place> places(begin, begin + kept.n_places);
    // The frame below another one always has a lower number.
    const std::vector<Frame> & frames = other.frames_;
    std::vector<uint32_t> own_stack(frames.size(), 0);
    for (const Place & place : places) {
        own_stack[place.stack] = 1;
    }
    for (size_t i = frames.size(); i-- > 1;) {
        if (own_stack[i] != 0) {
            own_stack[frames[i].below] = 1;
        }
    }
    own_stack[0] = 0;
    for (size_t i = 1; i < frames.size(); ++i) {
        if (own_stack[i] != 0) {
            own_stack[i] = pushed(frames[i].element, own_stack[frames[i].below]);
        }
    }
    for (Place & place : places) {
        place.stack = own_stack[place.stack];
    }
    begin_search();
    found_ = std::move(places);
    found_end_ = kept.may_end;
    return intern_found();
}

}  // namespace eliza
