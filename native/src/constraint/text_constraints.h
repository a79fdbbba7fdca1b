// The constraints by text that the streams of one model share.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "constraint/text_choices_constraint.h"
#include "constraint/text_constraint.h"
#include "lru_cache.h"

namespace eliza {

// A kind of value that is told by its bytes.
struct ValueKind {
    std::string name;  // "string", "string-body", "number", "integer", "value" or "dfa"
    int32_t depth = 16;
    std::string dfa;  // a table as JSON
};

// Least recently used, keyed by content. Safe from any thread.
class TextConstraints {
public:
    explicit TextConstraints(std::shared_ptr<const Vocabulary> vocabulary);

    // `json` is an array of strings; each choice is spelled `before` + the string. Throws Error that
    // names what is wrong.
    std::shared_ptr<const TextChoices> choices(std::string_view json, const std::string & before);

    std::shared_ptr<const TextConstraintKind> value(const ValueKind & kind, const Frame & frame);

private:
    std::shared_ptr<const TextConstraintKind> build(const ValueKind & kind, const Frame & frame);
    std::shared_ptr<const DfaMasks> dfa_masks(const ValueKind & kind);

    static constexpr size_t capacity = 128;

    std::shared_ptr<const Vocabulary> vocabulary_;
    JsonBrackets most_brackets_;
    std::shared_ptr<const DfaMasks> string_bodies_;
    LruCache<std::string, DfaMasks> dfas_{capacity};
    LruCache<int32_t, JsonMasks> values_by_depth_{JsonRecognizer::max_depth_limit};
    LruCache<std::string, TextChoices> choices_{capacity};
    LruCache<std::string, TextConstraintKind> values_{capacity};
};

// The names of value kinds but "dfa", for errors.
constexpr const char * json_kinds = "string, string-body, number, integer, value";

bool is_json_kind(const std::string & name);

}  // namespace eliza
