// The text constraints shared by the streams of one model.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "constraint/text_choices_constraint.h"
#include "constraint/text_constraint.h"
#include "lru_cache.h"

namespace eliza {

// What defines the bytes of a value: a JSON type, or a DFA.
enum class ValueKind { json_string, json_string_body, json_number, json_integer, json_value, dfa };

// Returns the kind with this name in a span, or nothing. "dfa" is not included, because it needs a table.
std::optional<ValueKind> value_kind(std::string_view name);

// Returns those names, for error messages.
std::string value_kind_names();

struct ValueSpec {
    ValueKind kind = ValueKind::json_value;
    int32_t depth = 16;  // maximum nesting depth of a JSON value
    std::string dfa;     // the DFA as JSON
};

// Caches that are keyed by content and drop the least recently used entries. Safe from any thread.
class TextConstraints {
public:
    explicit TextConstraints(std::shared_ptr<const Vocabulary> vocabulary);

    // `json` is an array of strings. Each label is spelled `before` + the string. Throws an Error that names the
    // problem.
    std::shared_ptr<const TextChoices> choices(std::string_view json, const std::string & before);

    std::shared_ptr<const TextConstraintKind> value(const ValueSpec & spec, const Frame & frame);

private:
    std::shared_ptr<const TextConstraintKind> build(const ValueSpec & spec, const Frame & frame);
    std::shared_ptr<const DfaMasks> dfa_masks(const ValueSpec & spec);

    // Limits of each cache.
    static constexpr size_t capacity = 128;
    static constexpr size_t most_bytes = size_t(64) << 20;

    std::shared_ptr<const Vocabulary> vocabulary_;
    JsonBrackets most_brackets_;
    std::shared_ptr<const DfaMasks> string_bodies_;
    LruCache<std::string, DfaMasks> dfas_{capacity, most_bytes};
    LruCache<int32_t, JsonMasks> values_by_depth_{JsonRecognizer::max_depth_limit, most_bytes};
    LruCache<std::string, TextChoices> choices_{capacity, most_bytes};
    LruCache<std::string, TextConstraintKind> values_{capacity, most_bytes};
};

}  // namespace eliza
