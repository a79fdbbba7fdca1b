// A JSON value. We use nlohmann's parser, but our own tree: nlohmann's destructor allocates memory, so destroying its
// tree when memory has run out ends the process. Our destructor is recursive; parse_json limits the depth.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace eliza {

class Json {
public:
    using Array = std::vector<Json>;
    // In input order. If a name is repeated, the last member counts.
    using Object = std::vector<std::pair<std::string, Json>>;

    Json() = default;
    Json(bool value) : value_(value) {}
    Json(double value) : value_(value) {}
    Json(const char * value) : Json(std::string(value)) {}
    Json(std::string value) : value_(std::make_unique<const std::string>(std::move(value))) {}
    template <typename Int, typename = std::enable_if_t<std::is_integral_v<Int> && !std::is_same_v<Int, bool>>>
    Json(Int value) {
        if constexpr (std::is_unsigned_v<Int>) {
            value_ = uint64_t{value};
        } else {
            value_ = int64_t{value};
        }
    }
    template <typename Value>
    explicit Json(const std::vector<Value> & values) : Json(array()) {
        for (const Value & value : values) {
            push_back(Json(value));
        }
    }
    static Json array();
    static Json object();

    bool is_null() const noexcept { return holds<std::monostate>(); }
    bool is_boolean() const noexcept { return holds<bool>(); }
    bool is_number_unsigned() const noexcept { return holds<uint64_t>(); }
    bool is_number_integer() const noexcept { return holds<int64_t>() || is_number_unsigned(); }
    bool is_number_float() const noexcept { return holds<double>(); }
    bool is_number() const noexcept { return is_number_integer() || is_number_float(); }
    bool is_string() const noexcept { return holds<Text>(); }
    bool is_array() const noexcept { return holds<Items>(); }
    bool is_object() const noexcept { return holds<Members>(); }
    const char * type_name() const noexcept;

    // Call each of these only on a value of its kind. A number converts to any numeric type.
    const std::string & text() const { return *std::get<Text>(value_); }
    bool boolean() const { return std::get<bool>(value_); }
    template <typename Number>
    Number number() const {
        if (const auto * value = std::get_if<int64_t>(&value_)) return static_cast<Number>(*value);
        if (const auto * value = std::get_if<uint64_t>(&value_)) return static_cast<Number>(*value);
        return static_cast<Number>(std::get<double>(value_));
    }

    // For arrays. Values of other kinds have size 0.
    size_t size() const noexcept { return is_array() ? items().size() : 0; }
    bool empty() const noexcept { return size() == 0; }
    const Json & operator[](size_t i) const { return items()[i]; }
    Array::const_iterator begin() const { return items().begin(); }
    Array::const_iterator end() const { return items().end(); }
    Json & push_back(Json value);

    // For objects.
    const Object & members() const { return *std::get<Members>(value_); }
    const Json * find(std::string_view name) const;  // nullptr if there is none
    Json & add(std::string name, Json value);        // returns the value

    // Returns the value as one line. Invalid UTF-8 is replaced by U+FFFD.
    std::string dump() const;

private:
    using Text = std::unique_ptr<const std::string>;
    using Items = std::unique_ptr<Array>;
    using Members = std::unique_ptr<Object>;

    template <typename Kind>
    bool holds() const noexcept {
        return std::holds_alternative<Kind>(value_);
    }
    const Array & items() const { return *std::get<Items>(value_); }
    Array & items() { return *std::get<Items>(value_); }
    void append_to(std::string & text) const;

    std::variant<std::monostate, bool, int64_t, uint64_t, double, Text, Items, Members> value_;
};

}  // namespace eliza
