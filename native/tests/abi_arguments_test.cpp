// Calls every function of the ABI with bad arguments: NULL, zero, negative, huge and odd values, one at a time and in
// random combinations. Every call must return a status and a message, or NULL. It must never crash, and the stream must
// work afterwards. bad_input_test.cpp tests the individual messages.

#include <array>
#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>

#include "abi_argument_values.h"
#include "eliza/eliza_gumbel_sampler.h"

namespace eliza::test {
namespace {

using namespace abi_arguments;

constexpr int most_combinations = 1500;

// ---- One call and its postconditions ----------------------------------------------------------

void release(EliInferenceContext * context) { eliza_inference_destroy(context); }
void release(EliLlmStream * stream) { eliza_inference_llm_stream_close(stream); }
void release(EliChoices * choices) { eliza_inference_free_choices(choices); }
void release(llama_sampler * sampler) { llama_sampler_free(sampler); }
template <typename T>
void release(T * nothing) {
    EXPECT_EQ(nothing, nullptr) << "a voice function returned a handle";
}
void release(const char *) {}  // static texts

// Checks that a failed call has set *err, if err is not NULL, and that a successful call has not.
template <typename R, typename Last>
void judge(R result, Last last) {
    bool failed;
    if constexpr (std::is_pointer_v<R>) {
        failed = result == nullptr;
        release(result);
    } else {
        static_assert(std::is_same_v<R, int>);
        failed = result < 0;
        EXPECT_GE(result, ELIZA_ERR_TEXT_CAP) << "not an eliza_status";
    }
    if constexpr (std::is_same_v<Last, char **>) {
        if (last != nullptr) {
            EXPECT_EQ(failed, *last != nullptr) << (*last != nullptr ? *last : "a failure without a message");
            EXPECT_TRUE(*last == nullptr || **last != '\0') << "an empty error text";
        }
    }
}

template <typename R, typename... A, size_t... I>
void call(R (*function)(A...), World & world, const std::array<size_t, sizeof...(A)> & choice,
          std::index_sequence<I...>) {
    HandedOut handed_out;
    const std::tuple<A...> arguments{[&] {
        auto v = Values<A>::of({world, handed_out, I});
        return v[choice[I] % v.size()];
    }()...};
    if constexpr (std::is_void_v<R>) {
        std::apply(function, arguments);
    } else if constexpr (sizeof...(A) == 0) {
        judge(function(), 0);
    } else {
        const R result = std::apply(function, arguments);
        judge(result, std::get<sizeof...(A) - 1>(arguments));
    }
}

// All combinations if there are few. Otherwise each value once with good values for the others, and random
// combinations.
template <typename R, typename... A>
void call_with_everything(R (*function)(A...), World & world) {
    constexpr size_t n = sizeof...(A);
    constexpr auto places = std::index_sequence_for<A...>{};
    HandedOut unused;
    const std::array<size_t, n> sizes = {Values<A>::of({world, unused, 0}).size()...};
    size_t product = 1;
    for (const size_t size : sizes) product *= size;

    std::array<size_t, n> choice{};
    if (product <= most_combinations) {
        for (size_t number = 0; number < product; ++number) {
            size_t rest = number;
            for (size_t i = 0; i < n; ++i) {
                choice[i] = rest % sizes[i];
                rest /= sizes[i];
            }
            call(function, world, choice, places);
        }
        return;
    }
    for (size_t i = 0; i < n; ++i) {
        for (choice[i] = 0; choice[i] < sizes[i]; ++choice[i]) call(function, world, choice, places);
        choice[i] = 0;
    }
    std::mt19937 random(7);
    for (int drawn = 0; drawn < most_combinations; ++drawn) {
        for (size_t i = 0; i < n; ++i) choice[i] = random() % sizes[i];
        call(function, world, choice, places);
    }
}

// ---- The table: every function of the headers, as tests/library/test_exports.py checks ---------------

struct Function {
    const char * name;
    std::function<void(World &)> call;
};

#define ARGUMENTS(name)                                                  \
    Function {                                                           \
        #name, [](World & world) { call_with_everything(&name, world); } \
    }

// Frees its argument, so the argument is NULL or a handle that was never issued.
#define ARGUMENTS_NULL(name)                  \
    Function {                                \
        #name, [](World &) { name(nullptr); } \
    }

const Function table[] = {
    ARGUMENTS(eliza_inference_abi_version),
    ARGUMENTS(eliza_inference_create),
    ARGUMENTS(eliza_inference_destroy),
    ARGUMENTS_NULL(eliza_inference_free_string),
    ARGUMENTS_NULL(eliza_inference_free_tokens),
    ARGUMENTS(eliza_inference_mmap_acquire),
    ARGUMENTS(eliza_inference_mmap_evict),
    ARGUMENTS(eliza_inference_set_option),
    ARGUMENTS(eliza_inference_describe),
    ARGUMENTS(eliza_inference_set_progress_callback),
    ARGUMENTS(eliza_inference_set_log_callback),
    ARGUMENTS(eliza_inference_tokenize_supported),
    ARGUMENTS(eliza_inference_tokenize),
    ARGUMENTS(eliza_inference_tokenize_into),
    ARGUMENTS(eliza_inference_detokenize),
    ARGUMENTS(eliza_inference_llm_stream_supported),
    ARGUMENTS(eliza_inference_llm_mtp_supported),
    ARGUMENTS(eliza_inference_llm_kv_quant_supported),
    ARGUMENTS(eliza_inference_llm_stream_open),
    ARGUMENTS(eliza_inference_llm_stream_prefill),
    ARGUMENTS(eliza_inference_llm_stream_append),
    ARGUMENTS(eliza_inference_llm_stream_next),
    ARGUMENTS(eliza_inference_llm_stream_next_many),
    ARGUMENTS(eliza_inference_llm_stream_set_stops),
    ARGUMENTS(eliza_inference_llm_token_mask_supported),
    ARGUMENTS(eliza_inference_llm_stream_set_token_mask),
    ARGUMENTS(eliza_inference_llm_stream_set_forced_tokens),
    ARGUMENTS(eliza_inference_llm_stream_decode),
    ARGUMENTS(eliza_inference_llm_stream_generate),
    ARGUMENTS(eliza_inference_llm_stream_set_sampling),
    ARGUMENTS(eliza_inference_llm_stream_set_logprobs),
    ARGUMENTS(eliza_inference_llm_stream_take_logprobs),
    ARGUMENTS(eliza_inference_llm_stream_prefill_logprobs),
    ARGUMENTS(eliza_inference_llm_stream_describe_chain),
    ARGUMENTS(eliza_inference_llm_stream_cancel),
    ARGUMENTS(eliza_inference_llm_stream_reset),
    ARGUMENTS(eliza_inference_llm_stream_reset_keep),
    ARGUMENTS(eliza_inference_llm_stream_close),
    ARGUMENTS(eliza_inference_last_error),
    ARGUMENTS(eliza_inference_last_status),
    ARGUMENTS(eliza_inference_llm_stream_stats),
    ARGUMENTS(eliza_inference_token_trie_supported),
    ARGUMENTS(eliza_inference_set_token_trie),
    ARGUMENTS(eliza_inference_prepare_choices),
    ARGUMENTS(eliza_inference_prepare_token_trie),
    ARGUMENTS(eliza_inference_free_choices),
    ARGUMENTS(eliza_inference_set_choices),
    ARGUMENTS(eliza_inference_llm_stream_choose),
    ARGUMENTS(eliza_inference_prepare_labels),
    ARGUMENTS(eliza_inference_choose),
    ARGUMENTS(eliza_inference_choose_prepared),
    ARGUMENTS(eliza_inference_set_text_choices),
    ARGUMENTS(eliza_inference_clear_token_trie),
    ARGUMENTS(eliza_inference_token_trie_leaf),
    ARGUMENTS(eliza_inference_token_trie_scores),
    ARGUMENTS(eliza_inference_llm_score_endings_supported),
    ARGUMENTS(eliza_inference_llm_stream_score_endings),
    ARGUMENTS(eliza_inference_llm_rank_supported),
    ARGUMENTS(eliza_inference_llm_stream_rank),
    ARGUMENTS(eliza_inference_llm_stream_rank_texts),
    ARGUMENTS(eliza_inference_rank),
    ARGUMENTS(eliza_inference_llm_stream_save_slot),
    ARGUMENTS(eliza_inference_llm_stream_restore_slot),
    ARGUMENTS(eliza_inference_vocabulary),
    ARGUMENTS(eliza_inference_embed_supported),
    ARGUMENTS(eliza_inference_embed),
    ARGUMENTS(eliza_inference_embed_texts),
    ARGUMENTS(eliza_inference_rerank_supported),
    ARGUMENTS(eliza_inference_rerank),
    ARGUMENTS(eliza_inference_decide),
    ARGUMENTS(eliza_inference_cancel_decide),
    ARGUMENTS(eliza_inference_token_embeddings_supported),
    ARGUMENTS(eliza_inference_token_embeddings),
    ARGUMENTS(eliza_inference_llm_eot_supported),
    ARGUMENTS(eliza_inference_llm_eot_score),
    ARGUMENTS(eliza_inference_set_verifier_callback),
    ARGUMENTS(eliza_inference_llm_fill_supported),
    ARGUMENTS(eliza_inference_llm_stream_fill),
    ARGUMENTS(llama_sampler_init_token_trie),
    ARGUMENTS(eliza_llama_sampler_init_token_tree),
    ARGUMENTS(llama_sampler_init_gumbel),
    ARGUMENTS(eliza_inference_tts_synthesize),
    ARGUMENTS(eliza_inference_tts_stream_supported),
    ARGUMENTS(eliza_inference_tts_synthesize_stream),
    ARGUMENTS(eliza_inference_cancel_tts),
    ARGUMENTS(eliza_inference_encode_reference),
    ARGUMENTS(eliza_inference_kokoro_supported),
    ARGUMENTS(eliza_inference_kokoro_load),
    ARGUMENTS(eliza_inference_kokoro_synthesize),
    ARGUMENTS(eliza_inference_kokoro_sample_rate),
    ARGUMENTS(eliza_inference_asr_transcribe),
    ARGUMENTS(eliza_inference_asr_timestamps_supported),
    ARGUMENTS(eliza_inference_asr_transcribe_timed),
    ARGUMENTS(eliza_inference_asr_stream_supported),
    ARGUMENTS(eliza_inference_asr_stream_open),
    ARGUMENTS(eliza_inference_asr_stream_feed),
    ARGUMENTS(eliza_inference_asr_stream_partial),
    ARGUMENTS(eliza_inference_asr_stream_finish),
    ARGUMENTS(eliza_inference_asr_stream_close),
    ARGUMENTS(eliza_inference_vad_supported),
    ARGUMENTS(eliza_inference_vad_open),
    ARGUMENTS(eliza_inference_vad_process),
    ARGUMENTS(eliza_inference_vad_reset),
    ARGUMENTS(eliza_inference_vad_close),
    ARGUMENTS(eliza_inference_wakeword_supported),
    ARGUMENTS(eliza_inference_wakeword_open),
    ARGUMENTS(eliza_inference_wakeword_score),
    ARGUMENTS(eliza_inference_wakeword_reset),
    ARGUMENTS(eliza_inference_wakeword_close),
    ARGUMENTS(eliza_inference_speaker_supported),
    ARGUMENTS(eliza_inference_speaker_open),
    ARGUMENTS(eliza_inference_speaker_embed),
    ARGUMENTS_NULL(eliza_inference_speaker_free),
    ARGUMENTS(eliza_inference_speaker_close),
    ARGUMENTS(eliza_inference_diariz_supported),
    ARGUMENTS(eliza_inference_diariz_open),
    ARGUMENTS(eliza_inference_diariz_segment),
    ARGUMENTS(eliza_inference_diariz_close),
    ARGUMENTS(eliza_inference_vision_supported),
    ARGUMENTS(eliza_inference_describe_image),
};

void PrintTo(const Function & function, std::ostream * out) { *out << function.name; }

// Runs in its own folder, because some functions write a file, and one of the arguments is a file name.
class AbiArguments : public testing::TestWithParam<Function> {
protected:
    const std::filesystem::path home = std::filesystem::current_path();
    const std::filesystem::path folder = own_folder("arguments");

    void SetUp() override {
        model = std::filesystem::absolute(model_path()).string();
        std::filesystem::remove_all(folder);
        std::filesystem::create_directories(folder);
        std::filesystem::current_path(folder);
    }
    void TearDown() override {
        std::filesystem::current_path(home);
        std::filesystem::remove_all(folder);
    }
};

TEST_P(AbiArguments, ReturnAStatusOrNullAndLeaveTheStreamUsable) {
    World world;
    GetParam().call(world);
    eliza_inference_set_log_callback(nullptr, nullptr);

    // A new stream, because a function of the table may have closed the old one or its context.
    if (world.context != nullptr && eliza_inference_mmap_acquire(world.context.get(), "text", nullptr) != 0) {
        world.context.release();
        world.context = create({}, model);
    }
    world.stream.reset();
    const StreamHandle stream = open(world.context);
    prefill(stream, {5, 6, 7});
    EXPECT_EQ(pull(stream, 3).tokens, [] {
        const ContextHandle untouched = create({}, model);
        const StreamHandle reference = open(untouched);
        prefill(reference, {5, 6, 7});
        return pull(reference, 3).tokens;
    }());
}

INSTANTIATE_TEST_SUITE_P(Every, AbiArguments, testing::ValuesIn(table),
                         [](const auto & info) { return std::string(info.param.name); });

// ---- Voice functions ---------------------------------------------------------------------------------

TEST(Voice, FailuresNameTheFamily) {
    ErrorText error;
    EXPECT_EQ(eliza_inference_tts_synthesize(nullptr, "hi", 2, nullptr, nullptr, 0, error.out()),
              ELIZA_ERR_NOT_IMPLEMENTED);
    EXPECT_EQ(error.text(), "text-to-speech is not supported: this library generates text only (see eliza_voice.h)");
    EXPECT_EQ(eliza_inference_vad_open(nullptr, 16000, error.out()), nullptr);
    EXPECT_EQ(error.text().find("voice activity detection is not supported"), 0u) << error.text();
    EXPECT_EQ(eliza_inference_describe_image(nullptr, nullptr, 0, nullptr, nullptr, nullptr, 0, error.out()),
              ELIZA_ERR_NOT_IMPLEMENTED);
    EXPECT_EQ(error.text().find("vision is not supported"), 0u) << error.text();
    EXPECT_EQ(eliza_inference_kokoro_sample_rate(nullptr), ELIZA_ERR_NOT_IMPLEMENTED);
}

TEST(Voice, CancellingNothingIsNotAnError) {
    ErrorText error;
    EXPECT_EQ(eliza_inference_cancel_tts(nullptr, error.out()), ELIZA_OK);
    EXPECT_EQ(error.text(), "");
}

TEST(Voice, ResultsAreEmptyAndNothingElseIsWritten) {
    int K = 7, T = 7, stamp = 7;
    int * tokens = &K;
    size_t n = 7;
    char text[] = "untouched";
    float sample = 7.0f, probability = 7.0f;
    int8_t label = 7;
    eliza_inference_encode_reference(nullptr, nullptr, 0, 24000, &K, &T, &tokens, nullptr);
    EXPECT_EQ(K, 0);
    EXPECT_EQ(T, 0);
    EXPECT_EQ(tokens, nullptr);
    eliza_inference_asr_transcribe_timed(nullptr, nullptr, 0, 16000, text, sizeof text, &stamp, &stamp, &n, nullptr);
    EXPECT_STREQ(text, "");
    EXPECT_EQ(n, 0u);
    EXPECT_EQ(stamp, 7);
    text[0] = 'U';
    eliza_inference_asr_transcribe(nullptr, nullptr, 0, 16000, text, 0, nullptr);
    EXPECT_STREQ(text, "Untouched");
    eliza_inference_vad_process(nullptr, nullptr, 0, &probability, nullptr);
    EXPECT_EQ(probability, 0.0f);
    n = 1;
    eliza_inference_diariz_segment(nullptr, nullptr, 0, &label, &n, nullptr);
    EXPECT_EQ(n, 0u);
    EXPECT_EQ(label, 7);
    eliza_inference_tts_synthesize(nullptr, "hi", 2, nullptr, &sample, 1, nullptr);
    EXPECT_EQ(sample, 7.0f);
}

}  // namespace
}  // namespace eliza::test
