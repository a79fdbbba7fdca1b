#include "constraint/text_constraints.h"

#include <stdexcept>
#include <vector>

#include "error.h"
#include "json_input.h"

namespace eliza {
namespace {

// Joins parts unambiguously into one key.
std::string joined(std::initializer_list<std::string_view> parts) {
    std::string key;
    for (const std::string_view part : parts) {
        key += std::to_string(part.size()) + ":";
        key += part;
    }
    return key;
}

std::vector<int32_t> parse_ints(const Json & array, const std::string & path) {
    if (!array.is_array()) {
        throw invalid_argument(path + ": expected an array, found " + kind_of(array));
    }
    std::vector<int32_t> values;
    values.reserve(array.size());
    for (const Json & value : array) {
        int64_t number = 0;
        if (!read_int(value, -1, INT32_MAX, number)) {
            throw invalid_argument(at(path, values.size()) + ": expected the number of a state or class, found " +
                                   kind_of(value));
        }
        values.push_back(static_cast<int32_t>(number));
    }
    return values;
}

Dfa parse_dfa(const std::string & text) {
    const Json json = parse_json(text, "dfa");
    std::vector<std::vector<int32_t>> transitions;
    for (const Json & row : member(json, "transitions", &Json::is_array, "an array", "dfa")) {
        transitions.push_back(parse_ints(row, at("dfa.transitions", transitions.size())));
    }
    return Dfa(parse_ints(member(json, "classes", &Json::is_array, "an array", "dfa"), "dfa.classes"), transitions,
               parse_ints(member(json, "accepting", &Json::is_array, "an array", "dfa"), "dfa.accepting"));
}

struct NamedKind {
    std::string_view name;
    ValueKind kind;
};
constexpr NamedKind json_kinds[] = {{"string", ValueKind::json_string},
                                    {"string-body", ValueKind::json_string_body},
                                    {"number", ValueKind::json_number},
                                    {"integer", ValueKind::json_integer},
                                    {"value", ValueKind::json_value}};

}  // namespace

std::optional<ValueKind> value_kind(std::string_view name) {
    for (const NamedKind & each : json_kinds) {
        if (each.name == name) {
            return each.kind;
        }
    }
    return std::nullopt;
}

std::string value_kind_names() {
    std::string names;
    for (const NamedKind & each : json_kinds) {
        names += (names.empty() ? "" : ", ") + std::string(each.name);
    }
    return names;
}

TextConstraints::TextConstraints(std::shared_ptr<const Vocabulary> vocabulary)
    : vocabulary_(std::move(vocabulary)),
      most_brackets_(most_json_brackets(vocabulary_->all())),
      string_bodies_(std::make_shared<const DfaMasks>(vocabulary_, json_string_body_dfa())) {
    // This mask covers nearly the whole vocabulary. Computing it here keeps the first request from waiting for it.
    string_bodies_->mask(string_bodies_->recognizer().start());
}

std::shared_ptr<const TextChoices> TextConstraints::choices(std::string_view json, const std::string & before) {
    return choices_.get(joined({before, json}), [&] {
        return std::make_shared<const TextChoices>(vocabulary_, before, parse_strings(json, "choices"));
    });
}

std::shared_ptr<const TextConstraintKind> TextConstraints::value(const ValueSpec & spec, const Frame & frame) {
    const std::string kind = std::to_string(static_cast<int>(spec.kind));
    return values_.get(joined({kind, std::to_string(spec.depth), spec.dfa, frame.before, frame.after}),
                       [&] { return build(spec, frame); });
}

std::shared_ptr<const TextConstraintKind> TextConstraints::build(const ValueSpec & spec, const Frame & frame) {
    if (spec.kind == ValueKind::json_value) {
        const auto values = values_by_depth_.get(spec.depth, [&] {
            return json_masks(vocabulary_, JsonRecognizer(spec.depth, most_brackets_), string_bodies_);
        });
        return json_constraint(framed_masks(vocabulary_, values, frame));
    }
    return dfa_constraint(framed_masks(vocabulary_, dfa_masks(spec), frame));
}

std::shared_ptr<const DfaMasks> TextConstraints::dfa_masks(const ValueSpec & spec) {
    if (spec.kind == ValueKind::json_string_body) {
        return string_bodies_;
    }
    return dfas_.get(joined({std::to_string(static_cast<int>(spec.kind)), spec.dfa}), [&] {
        switch (spec.kind) {
            case ValueKind::json_string: return json_string_masks(vocabulary_, string_bodies_);
            case ValueKind::json_number: return std::make_shared<const DfaMasks>(vocabulary_, json_number_dfa());
            case ValueKind::json_integer: return std::make_shared<const DfaMasks>(vocabulary_, json_integer_dfa());
            case ValueKind::dfa: return std::make_shared<const DfaMasks>(vocabulary_, parse_dfa(spec.dfa));
            case ValueKind::json_string_body:
            case ValueKind::json_value: break;  // have masks of their own
        }
        throw std::logic_error("this kind of value has no DFA");
    });
}

}  // namespace eliza
