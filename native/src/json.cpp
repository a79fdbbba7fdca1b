#include "json.h"

#include <nlohmann/json.hpp>

namespace eliza {

Json Json::array() {
    Json json;
    json.value_ = std::make_unique<Array>();
    return json;
}

Json Json::object() {
    Json json;
    json.value_ = std::make_unique<Object>();
    return json;
}

const char * Json::type_name() const noexcept {
    constexpr const char * names[] = {"null", "boolean", "number", "number", "number", "string", "array", "object"};
    return names[value_.index()];
}

Json & Json::push_back(Json value) {
    items().push_back(std::move(value));
    return items().back();
}

const Json * Json::find(std::string_view name) const {
    for (auto member = members().rbegin(); member != members().rend(); ++member) {
        if (member->first == name) {
            return &member->second;
        }
    }
    return nullptr;
}

Json & Json::add(std::string name, Json value) {
    Object & object = *std::get<Members>(value_);
    object.emplace_back(std::move(name), std::move(value));
    return object.back().second;
}

std::string Json::dump() const {
    std::string text;
    append_to(text);
    return text;
}

namespace {

// Lets nlohmann format one scalar: it escapes strings and finds the shortest digits of a fraction. Destroying a scalar
// does not allocate.
template <typename Scalar>
std::string dump_scalar(const Scalar & value) {
    return nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

void Json::append_to(std::string & text) const {
    if (is_array()) {
        text += '[';
        for (size_t i = 0; i < size(); ++i) {
            text += i > 0 ? "," : "";
            items()[i].append_to(text);
        }
        text += ']';
    } else if (is_object()) {
        text += '{';
        for (size_t i = 0; i < members().size(); ++i) {
            text += (i > 0 ? "," : "") + dump_scalar(members()[i].first) + ":";
            members()[i].second.append_to(text);
        }
        text += '}';
    } else if (is_string()) {
        text += dump_scalar(this->text());
    } else if (is_number_float()) {
        text += dump_scalar(number<double>());
    } else if (is_number_unsigned()) {
        text += std::to_string(number<uint64_t>());
    } else if (is_number_integer()) {
        text += std::to_string(number<int64_t>());
    } else {
        text += is_null() ? "null" : boolean() ? "true" : "false";
    }
}

}  // namespace eliza
