#include "sampling/sampling_params.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "error.h"
#include "json_input.h"
#include "parse_value.h"

namespace eliza {
namespace {

constexpr float largest = 1e6f;
constexpr size_t longest_breaker = 40;
constexpr int32_t max_int = std::numeric_limits<int32_t>::max();

// Static objects as described in platform/process.h.
const auto & kinds = *new std::vector<std::pair<const char *, SamplerKind>>{
    {"penalties", SamplerKind::penalties},
    {"dry", SamplerKind::dry},
    {"top_n_sigma", SamplerKind::top_n_sigma},
    {"top_k", SamplerKind::top_k},
    {"typ_p", SamplerKind::typ_p},
    {"top_p", SamplerKind::top_p},
    {"min_p", SamplerKind::min_p},
    {"xtc", SamplerKind::xtc},
    {"temperature", SamplerKind::temperature},
    {"infill", SamplerKind::infill},
    {"adaptive_p", SamplerKind::adaptive_p},
};

std::string kind_names() {
    std::string names;
    for (const auto & [name, kind] : kinds) {
        names += (names.empty() ? "" : ", ") + std::string(name);
    }
    return names;
}

std::vector<SamplerKind> parse_order(const std::string & text) {
    std::vector<SamplerKind> order;
    for (size_t begin = 0; !text.empty() && begin <= text.size();) {
        const size_t end = std::min(text.find(';', begin), text.size());
        const std::string name = text.substr(begin, end - begin);
        SamplerKind kind{};
        if (!parse_name(name, kinds, kind)) {
            throw invalid_argument("samplers: \"" + name + "\" is not one of " + kind_names());
        }
        for (const SamplerKind earlier : order) {
            if (earlier == kind) {
                throw invalid_argument("samplers: \"" + name + "\" is repeated in \"" + text + "\"");
            }
            if (earlier == SamplerKind::adaptive_p) {
                throw invalid_argument("samplers: adaptive_p selects the token, so \"" + name +
                                       "\" cannot come after it");
            }
        }
        order.push_back(kind);
        begin = end + 1;
    }
    return order;
}

// JSON cannot represent infinity, so it is a string.
bool is_minus_infinity(const Json & value) { return value.is_string() && value.text() == "-inf"; }

std::vector<llama_logit_bias> parse_logit_bias(const std::string & text) {
    std::vector<llama_logit_bias> biases;
    std::unordered_map<int64_t, size_t> known;
    const Json pairs = parse_array(text, "logit_bias", "[token, bias]");
    for (const Json & pair : pairs) {
        const std::string place = at("logit_bias", biases.size());
        if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_integer() ||
            !(pair[1].is_number() || is_minus_infinity(pair[1]))) {
            throw invalid_argument(place + ": expected [token, bias] with a number or \"-inf\"");
        }
        int64_t token = 0;
        if (!read_int(pair[0], 0, max_int, token)) {
            throw invalid_argument(place + ": expected a token from 0 to " + std::to_string(max_int) + ", got " +
                                   pair[0].dump());
        }
        const double bias = pair[1].is_number() ? pair[1].number<double>() : -HUGE_VAL;
        if (pair[1].is_number() && !(std::abs(bias) <= largest)) {
            throw invalid_argument(place + ": expected a bias from -1000000 to 1000000 or \"-inf\", got " +
                                   pair[1].dump());
        }
        if (const auto [before, is_new] = known.emplace(token, biases.size()); !is_new) {
            throw invalid_argument(place + ": token " + std::to_string(token) + " already has a bias in " +
                                   at("logit_bias", before->second));
        }
        biases.push_back({static_cast<llama_token>(token), static_cast<float>(bias)});
    }
    return biases;
}

std::vector<std::string> parse_breakers(const std::string & text) {
    constexpr const char * what = "dry_sequence_breakers";
    std::vector<std::string> strings;
    const Json listed = parse_array(text, what, "strings");
    for (const Json & each : listed) {
        const std::string breaker = each.is_string() ? each.text() : "";
        // llama.cpp truncates longer strings, and all strings at a NUL.
        if (breaker.empty() || breaker.size() > longest_breaker || breaker.find('\0') != std::string::npos) {
            throw invalid_argument(at(what, strings.size()) + ": expected a string of 1 to " +
                                   std::to_string(longest_breaker) + " bytes without a NUL");
        }
        strings.push_back(breaker);
    }
    return strings;
}

struct Preset {
    const char * name;
    float temperature;
    int32_t top_k;
    float top_p, min_p;
};
constexpr Preset presets[] = {
    {"greedy", 0.0f, 0, 1.0f, 0.0f},         {"balanced", 0.7f, 40, 0.95f, 0.05f}, {"creative", 1.0f, 0, 0.9f, 0.0f},
    {"very-creative", 1.2f, 0, 0.95f, 0.0f}, {"code", 0.2f, 40, 0.95f, 0.1f},
};

bool set_preset(SamplingParams & params, const std::string & name) {
    for (const Preset & preset : presets) {
        if (name == preset.name) {
            params.temperature = preset.temperature;
            params.top_k = preset.top_k;
            params.top_p = preset.top_p;
            params.min_p = preset.min_p;
            return true;
        }
    }
    return false;
}

using P = SamplingParams;

const auto & table = *new std::vector<Setting<P>>{
    {"preset", "greedy, balanced, creative, very-creative or code", set_preset},
    parsed("samplers", &P::order, parse_order),
    number("temperature", &P::temperature, 0.0f, largest, "0 (greedy) to 1000000"),
    number("dynatemp_range", &P::dynatemp_range, 0.0f, largest, "0 (off) to 1000000"),
    number("dynatemp_exponent", &P::dynatemp_exponent, 0.0f, largest, "0 to 1000000"),
    number("top_k", &P::top_k, 0, max_int, "0 (off) to 2147483647"),
    number("top_p", &P::top_p, 0.0f, 1.0f, "0 to 1 (off)"),
    number("min_p", &P::min_p, 0.0f, 1.0f, "0 (off) to 1"),
    number("typical_p", &P::typical_p, 0.0f, 1.0f, "0 to 1 (off)"),
    number("top_n_sigma", &P::top_n_sigma, 0.0f, largest, "0 (off) to 1000000"),
    number("xtc_probability", &P::xtc_probability, 0.0f, 1.0f, "0 (off) to 1"),
    number("xtc_threshold", &P::xtc_threshold, 0.0f, 1.0f, "0 to 1; above 0.5 is off"),
    number("repeat_last_n", &P::repeat_last_n, 0, 1 << 24, "0 (off) to 16777216 tokens"),
    number("repeat_penalty", &P::repeat_penalty, 0.0f, largest, "0 or 1 (off) to 1000000"),
    number("frequency_penalty", &P::frequency_penalty, -largest, largest, "-1000000 to 1000000"),
    number("presence_penalty", &P::presence_penalty, -largest, largest, "-1000000 to 1000000"),
    number("dry_multiplier", &P::dry_multiplier, 0.0f, largest, "0 (off) to 1000000"),
    number("dry_base", &P::dry_base, 1.0f, largest, "1 to 1000000"),
    number("dry_allowed_length", &P::dry_allowed_length, 0, max_int, "0 to 2147483647 tokens"),
    number("dry_penalty_last_n", &P::dry_penalty_last_n, 0, 1 << 24, "0 (off) to 16777216 tokens"),
    parsed("dry_sequence_breakers", &P::dry_sequence_breakers, parse_breakers),
    number("mirostat", &P::mirostat, 0, 2, "0 (off), 1 or 2"),
    number("mirostat_tau", &P::mirostat_tau, 0.0f, largest, "0 to 1000000"),
    number("mirostat_eta", &P::mirostat_eta, 0.0f, 1.0f, "0 to 1"),
    number("adaptive_target", &P::adaptive_target, -1.0f, 1.0f, "0 to 1, or below 0 (off)"),
    number("adaptive_decay", &P::adaptive_decay, 0.0f, 0.99f, "0 to 0.99"),
    parsed("logit_bias", &P::logit_bias, parse_logit_bias),
    choice<P, Draw>("draw", &P::draw, {{"cdf", Draw::cdf}, {"gumbel", Draw::gumbel}}),
    {"seed", "random, or 0 to 4294967294",
     [](P & p, const std::string & v) {
         return parse_name<uint32_t>(v, {{"random", LLAMA_DEFAULT_SEED}}, p.seed) ||
                parse_number<uint32_t>(v, 0, LLAMA_DEFAULT_SEED - 1, p.seed);
     }},
    number("reasoning_budget", &P::reasoning_budget, -1, max_int, "-1 (no limit) to 2147483647 tokens"),
    any_text("reasoning_start", &P::reasoning_start),
    any_text("reasoning_end", &P::reasoning_end),
    any_text("reasoning_message", &P::reasoning_message),
    {"disable_thinking", "0 or 1",
     [](P & p, const std::string & v) {
         return parse_name<bool>(v, {{"0", false}, {"1", true}, {"false", false}, {"true", true}}, p.disable_thinking);
     }},
};

}  // namespace

const char * sampler_name(SamplerKind kind) {
    for (const auto & [name, each] : kinds) {
        if (each == kind) {
            return name;
        }
    }
    return "";
}

bool set_sampling_param(SamplingParams & params, std::string_view key, const std::string & value) {
    const Setting<P> * setting = find_setting(table, key);
    if (setting != nullptr) {
        apply(*setting, params, value);
    }
    return setting != nullptr;
}

std::string sampling_param_names() { return names_of(table); }

SamplingParams parse_sampling(SamplingParams params, std::string_view text) {
    const Json json = parse_json(text, "sampling");
    if (!json.is_object()) {
        throw invalid_argument("sampling: expected an object, found " + kind_of(json));
    }
    const auto set = [&](const std::string & key, const Json & value) {
        if (!set_sampling_param(params, key, value.is_string() ? value.text() : value.dump())) {
            throw invalid_argument("sampling: unknown key \"" + key + "\"; known keys: " + sampling_param_names());
        }
    };
    if (const Json * preset = json.find("preset")) {
        set("preset", *preset);
    }
    for (const auto & [key, value] : json.members()) {
        if (key != "preset") {
            set(key, value);
        }
    }
    return params;
}

void check_together(const SamplingParams & p) {
    const bool greedy = p.temperature <= 0.0f;
    const bool penalizes = (p.repeat_penalty > 0.0f && p.repeat_penalty != 1.0f) || p.frequency_penalty != 0.0f ||
                           p.presence_penalty != 0.0f;
    const auto between = [](float share) { return share > 0.0f && share < 1.0f; };
    const std::tuple<SamplerKind, const char *, bool> settings[] = {
        {SamplerKind::penalties, "repeat_penalty, frequency_penalty or presence_penalty", penalizes},
        {SamplerKind::dry, "dry_multiplier", p.dry_multiplier > 0.0f},
        {SamplerKind::top_n_sigma, "top_n_sigma", p.top_n_sigma > 0.0f},
        {SamplerKind::top_k, "top_k", p.top_k > 0},
        {SamplerKind::typ_p, "typical_p", between(p.typical_p)},
        {SamplerKind::top_p, "top_p", between(p.top_p)},
        {SamplerKind::min_p, "min_p", p.min_p > 0.0f},
        {SamplerKind::xtc, "xtc_probability", p.xtc_probability > 0.0f && p.xtc_threshold <= 0.5f},
        {SamplerKind::temperature, "temperature", !greedy && (p.temperature != 1.0f || p.dynatemp_range > 0.0f)},
        {SamplerKind::adaptive_p, "adaptive_target", p.adaptive_target >= 0.0f},
    };
    const auto in_order = [&](SamplerKind kind) {
        return std::find(p.order.begin(), p.order.end(), kind) != p.order.end();
    };
    for (const auto & [kind, setting, is_on] : settings) {
        if (is_on && !in_order(kind)) {
            throw invalid_argument(std::string(setting) + " is set, but \"" + sampler_name(kind) +
                                   "\" is missing from samplers");
        }
    }
    const bool adaptive = p.adaptive_target >= 0.0f;
    if (!greedy && (p.mirostat != 0) + adaptive + (p.draw == Draw::gumbel) > 1) {
        throw invalid_argument("mirostat, adaptive_p and draw \"gumbel\" each draw the token: use only one of them");
    }
}

}  // namespace eliza
