#include <atomic>
#include <chrono>
#include <thread>

#include "test_session.h"

namespace eliza::test {
namespace {

// A prompt that takes long enough to decode to be cancelled in the middle.
std::vector<int32_t> long_prompt(size_t n) {
    std::vector<int32_t> tokens(n);
    for (size_t i = 0; i < n; ++i) tokens[i] = static_cast<int32_t>(5 + i % 200);
    return tokens;
}

// Cancels a prefill 20 ms after it began: usually inside its first pass, which takes much longer.
int cancel_soon(const StreamHandle & stream, const std::vector<int32_t> & prompt, ErrorText & error) {
    std::atomic<bool> started{false};
    std::thread canceller([&] {
        while (!started) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        eliza_inference_llm_stream_cancel(stream.get());
    });
    started = true;
    const int status = eliza_inference_llm_stream_prefill(stream.get(), prompt.data(), prompt.size(), error.out());
    canceller.join();
    return status;
}

TEST(Cancel, StopsARunningPrefillWithinOnePass) {
    // On a busy machine a cancel may come after the first pass, so the test makes up to 20 attempts. If cancels took
    // effect only at the end of a pass, every attempt would count at least one pass.
    for (int attempt = 1;; ++attempt) {
        const ContextHandle context = create({{"n_ctx", "8192"}, {"n_batch", "4096"}});
        const StreamHandle stream = open(context);
        ErrorText error;
        const int status = cancel_soon(stream, long_prompt(6000), error);
        if (stats(stream).forward_passes > 0 && attempt < 20) continue;
        ASSERT_EQ(status, ELIZA_ERR_CANCELLED);
        EXPECT_EQ(error.text(), "cancelled");
        EXPECT_EQ(stats(stream).n_past, 0);
        EXPECT_EQ(stats(stream).forward_passes, 0);

        const std::vector<int32_t> small = long_prompt(20);
        prefill(stream, small);
        const Output after = pull(stream, 5);
        const ContextHandle fresh = create();
        const StreamHandle reference = open(fresh);
        prefill(reference, small);
        EXPECT_EQ(after.tokens, pull(reference, 5).tokens);
        return;
    }
}

TEST(Cancel, DestroyingAContextEndsItsLoad) {
    ErrorText error;
    struct Destroyer {
        EliInferenceContext * context;
        std::thread thread;
    } destroyer{eliza_inference_create(f32_model_path().c_str(), error.out()), {}};
    ASSERT_NE(destroyer.context, nullptr) << error.text();
    const auto destroy = [](const char *, float, void * user) {
        auto & self = *static_cast<Destroyer *>(user);
        if (!self.thread.joinable()) {
            self.thread = std::thread([&] { eliza_inference_destroy(self.context); });
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the other thread waits for the load
    };
    ASSERT_EQ(eliza_inference_set_progress_callback(destroyer.context, destroy, &destroyer, error.out()), 0);
    const int status = eliza_inference_mmap_acquire(destroyer.context, "text", error.out());
    if (destroyer.thread.joinable()) destroyer.thread.join();
    EXPECT_EQ(status, ELIZA_ERR_CANCELLED) << error.text();
}

TEST(Cancel, WithoutARunningCallStopsOnlyTheNextCall) {
    const ContextHandle context = create();
    const StreamHandle stream = open(context);
    prefill(stream, {5, 6, 7});
    EXPECT_EQ(eliza_inference_llm_stream_cancel(stream.get()), 0);
    EXPECT_EQ(pull(stream).status, ELIZA_ERR_CANCELLED);
    EXPECT_EQ(pull(stream, 1).status, 0);
}

TEST(Cancel, FromTheCallbackLosesNoToken) {
    const ContextHandle context = create();
    const StreamHandle whole = open(context), stream = open(context);
    prefill(whole, {5, 6, 7});
    prefill(stream, {5, 6, 7});
    const Output expected = push(whole, 6);
    Output output;
    const auto one_at_a_time = [](int32_t token, const char * text, void * user) {
        collect(token, text, user);
        return 1;
    };
    while (output.tokens.size() < expected.tokens.size()) {
        ASSERT_EQ(eliza_inference_llm_stream_generate(stream.get(), 0, one_at_a_time, &output, nullptr),
                  ELIZA_ERR_CANCELLED);
    }
    EXPECT_EQ(output.tokens, expected.tokens);
    EXPECT_EQ(output.text, expected.text);
}

TEST(Cancel, StopsARunningGeneration) {
    const ContextHandle context = create({{"n_ctx", "4096"}});
    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = long_text_grammar;
    const StreamHandle stream = open(context, cfg);
    prefill(stream, {5, 6, 7});
    struct Progress {
        std::atomic<int> n{0};
    } progress;
    std::thread canceller([&] {
        while (progress.n < 3) std::this_thread::yield();
        eliza_inference_llm_stream_cancel(stream.get());
    });
    const auto count = [](int32_t, const char *, void * user) {
        ++static_cast<Progress *>(user)->n;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return 0;
    };
    const int status = eliza_inference_llm_stream_generate(stream.get(), 0, count, &progress, nullptr);
    canceller.join();
    EXPECT_EQ(status, ELIZA_ERR_CANCELLED);
}

}  // namespace
}  // namespace eliza::test
