// The constraints by text that the streams of one model share.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "constraint/text_choices_constraint.h"
#include "constraint/text_constraint.h"
#include "lru_cache.h"

namespace eliza {

// What tells the bytes of a value: one of JSON's kinds, or a table of states.
enum class ValueKind { json_string, json_string_body, json_number, json_integer, json_value, dfa };

// By the name it has in a span; nothing for a name that stands for none. "dfa" is none: it needs its table.
std::optional<ValueKind> value_kind(std::string_view name);

// Those names, for errors.
std::string value_kind_names();

struct ValueSpec {
    ValueKind kind = ValueKind::json_value;
    int32_t depth = 16;  // of a JSON value: how deep it may be nested
    std::string dfa;     // the table, as JSON
};

// Least recently used, keyed by content. Safe from any thread.
class TextConstraints {
public:
    explicit TextConstraints(std::shared_ptr<const Vocabulary> vocabulary);

    // `json` is an array of strings; each choice is spelled `before` + the string. Throws Error that
    // names what is wrong.
    std::shared_ptr<const TextChoices> choices(std::string_view json, const std::string & before);

    std::shared_ptr<const TextConstraintKind> value(const ValueSpec & spec, const Frame & frame);

private:
    std::shared_ptr<const TextConstraintKind> build(const ValueSpec & spec, const Frame & frame);
    std::shared_ptr<const DfaMasks> dfa_masks(const ValueSpec & spec);

    // Each of the caches.
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
