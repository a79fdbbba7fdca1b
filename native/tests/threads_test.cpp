#include <atomic>
#include <chrono>
#include <thread>

#include "test_session.h"

namespace eliza::test {
namespace {

TEST(Threads, StreamsOfOneContextDoNotDisturbEachOther) {
    const ContextHandle context = create({{"n_ctx", "2048"}}, f32_model_path());
    const std::string choices = payload_of(context, action_names);
    constexpr int n_threads = 4;
    const auto run = [&](int i) {
        const StreamHandle stream = open(context, full_precision_config());
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

TEST(Threads, DescribeTheLibraryAtTheSameTime) {
    const auto description = [] {
        ErrorText json, error;
        EXPECT_EQ(eliza_inference_describe(nullptr, json.out(), error.out()), 0) << error.text();
        return json.text();
    };
    const std::string alone = description();
    constexpr int n_threads = 4, n_calls = 2000;
    std::atomic<int> n_same{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < n_threads; ++i) {
        threads.emplace_back([&] {
            for (int call = 0; call < n_calls; ++call) n_same += description() == alone ? 1 : 0;
        });
    }
    for (std::thread & thread : threads) thread.join();
    EXPECT_EQ(n_same, n_threads * n_calls);
}

TEST(Threads, ASecondCallOnOneStreamFailsAndTheFirstContinues) {
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
    const ContextHandle context = create({{"n_slots", "1"}, {"slot_wait_ms", "0"}});
    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = long_text_grammar;
    EliLlmStream * stream = eliza_inference_llm_stream_open(context.get(), &cfg, nullptr);
    const int32_t prompt[] = {5, 6, 7};
    ASSERT_EQ(eliza_inference_llm_stream_prefill(stream, prompt, 3, nullptr), 0);
    struct Shared {
        std::atomic<bool> inside{false};
        std::atomic<int> n_tokens{0}, status{0};
    } shared;
    std::thread runner([&] {
        const auto slow = [](int32_t, const char *, void * user) {
            static_cast<Shared *>(user)->inside = true;
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
            ++static_cast<Shared *>(user)->n_tokens;
            return 0;
        };
        shared.status = eliza_inference_llm_stream_generate(stream, 0, slow, &shared, nullptr);
    });
    while (!shared.inside) std::this_thread::yield();
    eliza_inference_llm_stream_close(stream);
    // Nothing is running: the only slot is free, and no more tokens come.
    const int n_tokens = shared.n_tokens;
    EXPECT_NE(open(context), nullptr);
    runner.join();
    EXPECT_EQ(shared.n_tokens, n_tokens);
    EXPECT_EQ(shared.status, ELIZA_ERR_CANCELLED);
}

// A stream whose long prompt is decoded piece by piece on its own thread.
class LongPrefill {
public:
    explicit LongPrefill(const ContextHandle & context) : stream_(open(context)), runner_([this] { run(); }) {
        while (stats_started() == 0) std::this_thread::yield();
    }
    ~LongPrefill() {
        eliza_inference_llm_stream_cancel(stream_.get());
        runner_.join();
    }
    bool is_running() const { return !ended_; }

    static void count(const char * stage, float, void * user) {
        if (stage[0] == 'p') ++*static_cast<std::atomic<int> *>(user);
    }
    static std::atomic<int> n_pieces;

private:
    static int stats_started() { return n_pieces; }
    void run() {
        const std::vector<int32_t> prompt(16000, 50);
        eliza_inference_llm_stream_prefill(stream_.get(), prompt.data(), prompt.size(), nullptr);
        ended_ = true;
    }

    StreamHandle stream_;
    std::atomic<bool> ended_{false};
    std::thread runner_;
};

std::atomic<int> LongPrefill::n_pieces{0};

class DuringALongPrefill : public testing::Test {
protected:
    ContextHandle context = create({{"n_ctx", "20000"}, {"n_batch", "256"}, {"n_threads", "1"}});

    void SetUp() override {
        LongPrefill::n_pieces = 0;
        eliza_inference_set_progress_callback(context.get(), LongPrefill::count, &LongPrefill::n_pieces, nullptr);
    }
};

TEST_F(DuringALongPrefill, OtherStreamsOpenTokenizeGenerateAndClose) {
    const LongPrefill other(context);
    const std::vector<int32_t> prompt = tokenize(context, "Hello there", true);
    StreamHandle stream = open(context);
    prefill(stream, prompt);
    pull(stream, 3);
    stream.reset();
    EXPECT_TRUE(other.is_running());
}

TEST_F(DuringALongPrefill, AWaitingStreamCanBeCancelled) {
    const LongPrefill other(context);
    const StreamHandle stream = open(context);
    std::atomic<int> status{1};
    std::thread waiting([&] {
        const std::vector<int32_t> prompt(8000, 60);
        status = eliza_inference_llm_stream_prefill(stream.get(), prompt.data(), prompt.size(), nullptr);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    eliza_inference_llm_stream_cancel(stream.get());
    waiting.join();
    EXPECT_EQ(status, ELIZA_ERR_CANCELLED);
    EXPECT_TRUE(other.is_running());
}

}  // namespace
}  // namespace eliza::test
