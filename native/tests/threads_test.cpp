#include <atomic>
#include <thread>

#include "test_session.h"

namespace eliza::test {
namespace {

TEST(Threads, StreamsOfOneContextDoNotDisturbEachOther) {
    const ContextHandle context = create({{"n_ctx", "2048"}});
    const std::string choices = payload_of(context, action_names);
    constexpr int n_threads = 4;
    const auto run = [&](int i) {
        const StreamHandle stream = open(context);
        const std::vector<int32_t> prompt = tokenize(context, "Request number " + std::to_string(i) + ": please", true);
        prefill(stream, prompt);
        set_trie(stream, choices, ELIZA_TRIE_ARGMAX);
        return pull(stream, 25).tokens;
    };
    std::vector<std::vector<int32_t>> alone, together(n_threads);
    for (int i = 0; i < n_threads; ++i) alone.push_back(run(i));
    std::vector<std::thread> threads;
    for (int i = 0; i < n_threads; ++i) {
        threads.emplace_back([&, i] {
            for (int round = 0; round < 5; ++round) together[static_cast<size_t>(i)] = run(i);
        });
    }
    for (std::thread & thread : threads) thread.join();
    EXPECT_EQ(together, alone);
}

TEST(Threads, ASecondCallOnOneStreamGetsAnErrorAndTheFirstGoesOn) {
    const ContextHandle context = create();
    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = long_text_grammar;
    const StreamHandle stream = open(context, cfg);
    prefill(stream, {5, 6, 7});
    struct Shared {
        std::atomic<bool> inside{false}, checked{false};
    } shared;
    std::thread other([&] {
        while (!shared.inside) std::this_thread::yield();
        const Output second = pull(stream, 1);
        EXPECT_EQ(second.status, ELIZA_ERR_INVALID_ARG);
        EXPECT_EQ(second.error, "another call is running on this stream");
        shared.checked = true;
    });
    const auto wait = [](int32_t, const char *, void * user) {
        auto & s = *static_cast<Shared *>(user);
        s.inside = true;
        while (!s.checked) std::this_thread::yield();
        return 0;
    };
    EXPECT_EQ(eliza_inference_llm_stream_generate(stream.get(), 2, wait, &shared, nullptr), 0);
    other.join();
}

TEST(Threads, CloseCancelsTheRunningCallAndWaitsForIt) {
    const ContextHandle context = create({{"n_slots", "1"}});
    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = long_text_grammar;
    EliLlmStream * stream = eliza_inference_llm_stream_open(context.get(), &cfg, nullptr);
    const int32_t prompt[] = {5, 6, 7};
    ASSERT_EQ(eliza_inference_llm_stream_prefill(stream, prompt, 3, nullptr), 0);
    struct Shared {
        std::atomic<bool> inside{false}, ended{false};
    } shared;
    std::thread runner([&] {
        const auto slow = [](int32_t, const char *, void * user) {
            static_cast<Shared *>(user)->inside = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            return 0;
        };
        eliza_inference_llm_stream_generate(stream, 0, slow, &shared, nullptr);
        shared.ended = true;
    });
    while (!shared.inside) std::this_thread::yield();
    eliza_inference_llm_stream_close(stream);
    runner.join();
    EXPECT_TRUE(shared.ended);
    EXPECT_NE(open(context), nullptr);  // the only slot is free
}

}  // namespace
}  // namespace eliza::test
