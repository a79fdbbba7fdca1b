// The values that abi_arguments_test.cpp passes for each type of argument: a good one first, then bad ones.
#pragma once

#include <algorithm>
#include <array>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "eliza/eliza_inference.h"
#include "eliza/eliza_token_trie_sampler.h"
#include "eliza/eliza_voice.h"
#include "test_session.h"

namespace eliza::test::abi_arguments {

// The size of every buffer, in elements. The library must reject larger lengths before it reads anything.
inline constexpr size_t room = 4096;

inline constexpr size_t most_arguments = 13;

inline std::string model;  // absolute path

// A context and a stream in use, and invalid handles.
struct World {
    ContextHandle context = create({{"n_ctx", "256"}, {"n_slots", "3"}, {"n_threads", "1"}}, model);
    StreamHandle stream = open(context);
    EliInferenceContext * destroyed;
    EliLlmStream * closed;

    World() {
        ContextHandle short_lived = create({}, model);
        destroyed = short_lived.get();
        StreamHandle also = open(context);
        closed = also.get();
        prefill(stream, {5, 6, 7});
    }
};

// Memory that the library allocates during one call, one slot per argument.
struct HandedOut {
    std::array<char *, most_arguments> texts{};
    std::array<int *, most_arguments> tokens{};

    ~HandedOut() {
        for (char * text : texts) eliza_inference_free_string(text);
        for (int * list : tokens) eliza_inference_free_tokens(list);
    }
};

struct Pool {
    World & world;
    HandedOut & handed_out;
    size_t argument;  // index in the call
};

// The values for a type of argument. The first one is valid.
template <typename T, typename = void>
struct Values;

template <>
struct Values<EliInferenceContext *> {
    static std::vector<EliInferenceContext *> of(const Pool & pool) {
        return {pool.world.context.get(), nullptr, reinterpret_cast<EliInferenceContext *>(8), pool.world.destroyed};
    }
};

template <>
struct Values<EliLlmStream *> {
    static std::vector<EliLlmStream *> of(const Pool & pool) {
        return {pool.world.stream.get(), nullptr, reinterpret_cast<EliLlmStream *>(8), pool.world.closed};
    }
};

// Buffers for output.
template <typename T>
struct Buffers {
    static std::vector<T *> of(const Pool & pool) {
        static std::array<std::array<T, room>, most_arguments> buffers;
        return {buffers[pool.argument].data(), nullptr};
    }
};
template <>
struct Values<int64_t *> : Buffers<int64_t> {};
template <>
struct Values<uint8_t *> : Buffers<uint8_t> {};

template <typename T>
struct Handles {
    static std::vector<T *> of(const Pool &) { return {nullptr, reinterpret_cast<T *>(8)}; }
};
template <>
struct Values<EliChoices *> : Handles<EliChoices> {};
template <>
struct Values<EliAsrStream *> : Handles<EliAsrStream> {};
template <>
struct Values<EliVad *> : Handles<EliVad> {};
template <>
struct Values<EliWakeWord *> : Handles<EliWakeWord> {};
template <>
struct Values<EliSpeaker *> : Handles<EliSpeaker> {};
template <>
struct Values<EliDiariz *> : Handles<EliDiariz> {};

template <>
struct Values<const llama_vocab *> {
    static std::vector<const llama_vocab *> of(const Pool &) { return {nullptr}; }
};

// Every text is followed by NULs up to `room`, so every length up to `room` is valid.
template <>
struct Values<const char *> {
    static std::vector<const char *> of(const Pool &) {
        static const std::vector<std::string> texts = [] {
            std::vector<std::string> list = {
                "x", "", "{}", "[]", "\xFF\xFE", std::string(room, '['), R"([{"a":1e999}])"};
            for (std::string & text : list) text.resize(room, '\0');
            return list;
        }();
        std::vector<const char *> values = {nullptr};
        for (const std::string & text : texts) values.push_back(text.c_str());
        return values;
    }
};

// No tokens, one, or as many as fit.
template <>
struct Values<const uint32_t *> {
    static std::vector<const uint32_t *> of(const Pool &) {
        static const std::vector<uint32_t> one = [] {
            std::vector<uint32_t> words(room);
            words[0] = 1u << 5;
            return words;
        }();
        static const std::vector<uint32_t> none(room), all(room, UINT32_MAX);
        return {one.data(), nullptr, none.data(), all.data()};
    }
};

template <>
struct Values<const eliza_llm_stream_config_t *> {
    static std::vector<const eliza_llm_stream_config_t *> of(const Pool &) {
        static const std::vector<eliza_llm_stream_config_t> list = [] {
            std::vector<eliza_llm_stream_config_t> configs(1, config());
            const auto add = [&](const std::function<void(eliza_llm_stream_config_t &)> & change) {
                configs.push_back(config());
                change(configs.back());
            };
            for (const int32_t number : {INT_MIN, -1, 1, INT_MAX}) {
                add([&](auto & c) { c.max_tokens = number; });
                add([&](auto & c) { c.top_k = number; });
                add([&](auto & c) { c.slot_id = number; });
                add([&](auto & c) { c.draft_min = number; });
                add([&](auto & c) { c.draft_max = number; });
                add([&](auto & c) { c.disable_thinking = number; });
                add([&](auto & c) { c.n_gpu_layers = number; });
            }
            for (const float number : {-1.0f, FLT_MAX, -FLT_MAX, NAN, INFINITY}) {
                add([&](auto & c) { c.temperature = number; });
                add([&](auto & c) { c.top_p = number; });
                add([&](auto & c) { c.repeat_penalty = number; });
            }
            for (const char * text : {"", "x", "\xFF"}) {
                add([&](auto & c) { c.prompt_cache_key = text; });
                add([&](auto & c) { c.gbnf_grammar = text; });
                add([&](auto & c) { c.cache_type_k = text; });
                add([&](auto & c) { c.cache_type_v = text; });
                add([&](auto & c) { c.mtp_drafter_path = text, c.draft_min = c.draft_max = 4; });
            }
            return configs;
        }();
        std::vector<const eliza_llm_stream_config_t *> values = {nullptr};
        for (const auto & cfg : list) values.push_back(&cfg);
        return values;
    }
};

template <typename T>
struct Values<T, std::enable_if_t<std::is_integral_v<T>>> {
    static std::vector<T> of(const Pool &) {
        if constexpr (sizeof(T) == sizeof(size_t)) {  // lengths and capacities: none, odd ones, too large ones
            return {1, 0, 3, 7, 79, 161, room, size_t(1) << 40, SIZE_MAX / 4, SIZE_MAX / 2 + 1, SIZE_MAX};
        } else {
            return {1, 0, static_cast<T>(-1), 2, std::numeric_limits<T>::min(), std::numeric_limits<T>::max()};
        }
    }
};

template <>
struct Values<float> {
    static std::vector<float> of(const Pool &) { return {1.0f, 0.0f, -1.0f, NAN, INFINITY, FLT_MAX}; }
};

// Arrays for input and output. Each argument has its own array, as a caller's would.
template <typename T>
struct Values<T *, std::enable_if_t<std::is_arithmetic_v<std::remove_const_t<T>> && !std::is_same_v<T, const char>>> {
    static std::vector<T *> of(const Pool & pool) {
        static std::array<std::vector<std::remove_const_t<T>>, most_arguments> arrays;
        auto & array = arrays[pool.argument];
        // The library cannot detect a capacity that exceeds the array, so everything it writes must fit. A tokenizer
        // may replace an invalid byte by U+FFFD, which has three bytes and tokens. Texts have embeddings.
        constexpr bool is_large = std::is_same_v<T, char> || std::is_same_v<T, float>;
        array.assign((is_large ? 64 : 4) * room, std::remove_const_t<T>(1));
        return {array.data(), nullptr};
    }
};

template <>
struct Values<eliza_llm_stream_stats_t *> {
    static std::vector<eliza_llm_stream_stats_t *> of(const Pool &) {
        static eliza_llm_stream_stats_t stats;
        return {&stats, nullptr};
    }
};

// `room` endings with one leaf each, so that all scores fit.
template <>
struct Values<const eliza_ending_t *> {
    static std::vector<const eliza_ending_t *> of(const Pool & pool) {
        static const int32_t token = 300;
        static const std::string text = R"(["x"])";
        EliChoices * choices =
            eliza_inference_prepare_choices(pool.world.context.get(), text.data(), text.size(), nullptr, nullptr);
        static std::vector<eliza_ending_t> good, nothing, outside;
        good.assign(room, {&token, 1, choices});
        nothing.assign(room, {nullptr, 0, choices});
        outside.assign(room, {nullptr, 1, reinterpret_cast<EliChoices *>(8)});
        return {good.data(), nullptr, nothing.data(), outside.data()};
    }
};

// One ending and one range of hidden states. Each other request has one odd field.
template <>
struct Values<eliza_decide_t *> {
    static std::vector<eliza_decide_t *> of(const Pool & pool) {
        static std::vector<eliza_decide_t> list;
        static const std::vector<int32_t> tokens(room, 5), layers(room, 1);
        static const std::vector<uint64_t> ranges(2 * room, 1);
        static std::array<std::vector<double>, 3> scores{std::vector<double>(room), std::vector<double>(room),
                                                         std::vector<double>(room)};
        static std::vector<float> states(64 * room);
        eliza_decide_t good{};
        good.size = sizeof good;
        good.tokens = tokens.data();
        good.n_tokens = 3;
        good.endings = Values<const eliza_ending_t *>::of(pool).front();
        good.n_endings = 1;
        good.legal_out = scores[0].data();
        good.joint_out = scores[1].data();
        good.option_mass_out = scores[2].data();
        good.cap = room;
        good.layers = layers.data();
        good.n_layers = 1;
        static const uint64_t first_two[] = {0, 2};
        good.ranges = first_two;
        good.n_ranges = 1;
        good.states_out = states.data();
        good.states_cap = states.size();
        list.assign(1, good);
        const auto add = [&](const std::function<void(eliza_decide_t &)> & change) {
            list.push_back(good);
            change(list.back());
        };
        for (const uint64_t n : Values<uint64_t>::of(pool)) {
            add([&](auto & r) { r.size = n; });
            add([&](auto & r) { r.n_tokens = n; });
            add([&](auto & r) { r.n_endings = n; });
            add([&](auto & r) { r.cap = std::min<uint64_t>(n, room); });
            add([&](auto & r) { r.n_layers = n; });
            add([&](auto & r) { r.ranges = ranges.data(), r.n_ranges = n; });
            add([&](auto & r) { r.n_endings = 0, r.n_kept = n; });
            add([&](auto & r) { r.states_cap = std::min<uint64_t>(n, states.size()); });
        }
        for (const int32_t n : Values<int32_t>::of(pool)) add([&](auto & r) { r.cancelled = n; });
        for (const eliza_llm_stream_config_t * cfg : Values<const eliza_llm_stream_config_t *>::of(pool)) {
            add([&](auto & r) { r.config = cfg; });
        }
        for (const eliza_ending_t * endings : Values<const eliza_ending_t *>::of(pool)) {
            add([&](auto & r) { r.endings = endings; });
        }
        add([](auto & r) { r.tokens = nullptr; });
        add([](auto & r) { r.layers = nullptr; });
        add([](auto & r) { r.ranges = nullptr; });
        add([](auto & r) { r.states_out = nullptr; });
        add([](auto & r) { r.legal_out = r.joint_out = r.option_mass_out = nullptr; });
        std::vector<eliza_decide_t *> values;
        for (eliza_decide_t & request : list) values.push_back(&request);
        values.push_back(nullptr);
        return values;
    }
};

// `room` labels.
template <>
struct Values<const char * const *> {
    static std::vector<const char * const *> of(const Pool &) {
        static std::vector<std::string> texts;
        static std::vector<const char *> labels, same(room, "x"), nothing(room, nullptr);
        if (texts.empty()) {
            for (size_t i = 0; i < room; ++i) texts.push_back("label " + std::to_string(i));
            for (const std::string & text : texts) labels.push_back(text.c_str());
        }
        return {labels.data(), nullptr, same.data(), nothing.data()};
    }
};

template <>
struct Values<const eliza_choose_options_t *> {
    static std::vector<const eliza_choose_options_t *> of(const Pool &) {
        static const std::vector<eliza_choose_options_t> list = {
            {sizeof(eliza_choose_options_t), ELIZA_TRIE_SAMPLE, 0.5f, 1, "x"},
            {0, 0, 0.0f, 0, nullptr},
            {UINT32_MAX, 0, 0.0f, 0, nullptr},
            {sizeof(eliza_choose_options_t), INT_MIN, NAN, INT_MIN, ""},
            {sizeof(eliza_choose_options_t), ELIZA_TRIE_BEST_LEAF, -INFINITY, 0, "\xFF"}};
        std::vector<const eliza_choose_options_t *> values = {nullptr};
        for (const auto & options : list) values.push_back(&options);
        return values;
    }
};

template <>
struct Values<eliza_choice_t *> {
    static std::vector<eliza_choice_t *> of(const Pool &) {
        static eliza_choice_t choice;
        return {&choice, nullptr};
    }
};

template <>
struct Values<const eliza_rank_options_t *> {
    static std::vector<const eliza_rank_options_t *> of(const Pool &) {
        static const std::vector<int32_t> groups(room, 0), outside(room, INT_MIN);
        static const std::vector<eliza_rank_options_t> list = {
            {sizeof(eliza_rank_options_t), 3, ELIZA_RANK_JOINT, 0, nullptr, 0, "x", 1},
            {0, 0, 0, 0, nullptr, 0, nullptr, 0},
            {sizeof(eliza_rank_options_t), UINT32_MAX, INT_MIN, 0, nullptr, 0, nullptr, 0},
            {sizeof(eliza_rank_options_t), 1, 0, INT_MIN, nullptr, 0, "\xFF", INT_MIN},
            {sizeof(eliza_rank_options_t), 1, 0, -1, groups.data(), 1, nullptr, 0},
            {sizeof(eliza_rank_options_t), 1, 0, -1, groups.data(), UINT64_MAX, nullptr, 0},
            {sizeof(eliza_rank_options_t), 1, 0, 1, outside.data(), 1, nullptr, 0}};
        std::vector<const eliza_rank_options_t *> values = {nullptr};
        for (const auto & options : list) values.push_back(&options);
        return values;
    }
};

template <>
struct Values<eliza_ranked_t *> {
    static std::vector<eliza_ranked_t *> of(const Pool &) {
        static std::vector<eliza_ranked_t> ranked(room);
        return {ranked.data(), nullptr};
    }
};

template <>
struct Values<eliza_ranking_t *> {
    static std::vector<eliza_ranking_t *> of(const Pool &) {
        static eliza_ranking_t ranking;
        return {&ranking, nullptr};
    }
};

template <>
struct Values<eliza_token_logprob_t *> {
    static std::vector<eliza_token_logprob_t *> of(const Pool &) {
        static std::vector<eliza_token_logprob_t> entries(room);
        return {entries.data(), nullptr};
    }
};

template <>
struct Values<char **> {
    static std::vector<char **> of(const Pool & pool) { return {&pool.handed_out.texts[pool.argument], nullptr}; }
};

template <>
struct Values<int **> {
    static std::vector<int **> of(const Pool & pool) { return {&pool.handed_out.tokens[pool.argument], nullptr}; }
};

template <>
struct Values<void *> {
    static std::vector<void *> of(const Pool &) { return {nullptr, reinterpret_cast<void *>(8)}; }
};

// A callback that always asks to stop.
template <typename R, typename... A>
struct Values<R (*)(A...)> {
    static R stop(A...) { return R(1); }
    static std::vector<R (*)(A...)> of(const Pool &) { return {&stop, nullptr}; }
};
template <typename... A>
struct Values<void (*)(A...)> {
    static void ignore(A...) {}
    static std::vector<void (*)(A...)> of(const Pool &) { return {&ignore, nullptr}; }
};

}  // namespace eliza::test::abi_arguments
