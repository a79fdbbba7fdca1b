#include "engine/answer/span_spec.h"

#include <algorithm>
#include <iterator>
#include <string_view>

#include "error.h"
#include "json_input.h"

namespace eliza {
namespace {

std::string text_member(const Json & span, const char * key) {
    const Json * text = optional_member(span, key, &Json::is_string, "a string", "");
    return text != nullptr ? text->text() : "";
}

double number_member(const Json & span, const char * key, double otherwise, double least, double most) {
    const Json * number = optional_member(span, key, &Json::is_number, "a number", "");
    if (number == nullptr) {
        return otherwise;
    }
    const auto value = number->number<double>();
    if (!(value >= least && value <= most)) {
        throw invalid_argument(std::string(key) + ": expected " + Json(least).dump() + " to " + Json(most).dump() +
                               ", found " + number->dump());
    }
    return value;
}

int32_t int_member(const Json & span, const char * key, int32_t otherwise, int32_t least, int32_t most) {
    const Json * number = optional_member(span, key, &Json::is_number_integer, "a whole number", "");
    if (number == nullptr) {
        return otherwise;
    }
    int64_t value = 0;
    if (!read_int(*number, least, most, value)) {
        throw invalid_argument(std::string(key) + ": expected " + std::to_string(least) + " to " +
                               std::to_string(most) + ", found " + number->dump());
    }
    return static_cast<int32_t>(value);
}

bool bool_member(const Json & span, const char * key) {
    const Json * value = optional_member(span, key, &Json::is_boolean, "true or false", "");
    return value != nullptr && value->boolean();
}

void check_members(const Json & span) {
    constexpr std::string_view known[] = {"after",      "before",    "best",        "choices", "depth",
                                          "dfa",        "grammar",   "heal",        "json",    "logprobs",
                                          "max_tokens", "take_back", "temperature", "top_k",   "top_p"};
    if (!span.is_object()) {
        throw invalid_argument("span: expected an object, found " + kind_of(span));
    }
    for (const auto & [key, value] : span.members()) {
        if (std::find(std::begin(known), std::end(known), key) != std::end(known)) {
            continue;
        }
        std::string names;
        for (const std::string_view name : known) {
            names += (names.empty() ? "" : ", ") + std::string(name);
        }
        throw invalid_argument("span: unknown member \"" + key + "\"; known members: " + names);
    }
}

}  // namespace

SpanSpec parse_span(std::string_view json) {
    const Json span = parse_json(json, "span");
    check_members(span);
    SpanSpec spec;
    spec.before = text_member(span, "before");
    spec.after = text_member(span, "after");
    std::string kinds;
    const auto is = [&](const char * key, SpanSpec::Kind kind) {
        if (span.find(key) == nullptr) {
            return false;
        }
        kinds += (kinds.empty() ? "" : " and ") + std::string(key);
        spec.kind = kind;
        return true;
    };
    if (is("choices", SpanSpec::Kind::choices)) {
        spec.choices = strings_of(member(span, "choices", &Json::is_array, "an array of strings", ""), "choices");
        check_distinct(spec.choices, "choices");
    }
    if (is("json", SpanSpec::Kind::value)) {
        const std::string name = text_member(span, "json");
        const std::optional<ValueKind> kind = value_kind(name);
        if (!kind) {
            throw invalid_argument("json: expected one of " + value_kind_names() + ", found \"" + name + "\"");
        }
        spec.value.kind = *kind;
    }
    if (is("dfa", SpanSpec::Kind::value)) {
        spec.value.kind = ValueKind::dfa;
        spec.value.dfa = member(span, "dfa", &Json::is_object, "an object", "").dump();
    }
    if (is("grammar", SpanSpec::Kind::grammar)) {
        spec.grammar = text_member(span, "grammar");
    }
    if (kinds.find(' ') != std::string::npos) {
        throw invalid_argument("span: expected one value, found " + kinds);
    }
    constexpr double any = 1e6;
    spec.value.depth = int_member(span, "depth", spec.value.depth, 1, JsonRecognizer::max_depth_limit);
    spec.temperature = static_cast<float>(number_member(span, "temperature", 0.0, 0.0, any));
    spec.top_k = int_member(span, "top_k", 0, 0, INT32_MAX);
    spec.top_p = static_cast<float>(number_member(span, "top_p", 1.0, 0.0, 1.0));
    spec.max_tokens = int_member(span, "max_tokens", spec.max_tokens, 0, INT32_MAX);
    spec.logprobs = bool_member(span, "logprobs");
    spec.heal = bool_member(span, "heal");
    spec.best = bool_member(span, "best");
    spec.take_back = int_member(span, "take_back", spec.take_back, 0, INT32_MAX);
    return spec;
}

std::string to_json(const FillResult & result) {
    Json json = Json::object();
    json.add("text", result.text);
    json.add("logprob", result.logprob ? Json(*result.logprob) : Json());
    json.add("choice", result.choice);
    json.add("tokens", result.n_tokens);
    json.add("truncated", result.truncated);
    json.add("complete", result.complete);
    json.add("answer_tokens", Json(result.answer));
    json.add("answer_bytes", Json(result.answer_bytes));
    return json.dump();
}

}  // namespace eliza
