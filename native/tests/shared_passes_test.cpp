// Streams that share forward passes: same results as alone, no starvation, no lost work.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <thread>

#include "engine/pass/sequence.h"
#include "test_session.h"

namespace eliza::test {
namespace {

using Options = std::map<std::string, std::string>;

ContextHandle create_f32(Options options = {}) {
    options.insert({{"n_ctx", "4096"}, {"n_threads", "1"}});
    return create(options, f32_model_path());
}

// Runs body(0) to body(n - 1), each on its own thread.
void on_threads(int n, const std::function<void(int)> & body) {
    std::vector<std::thread> threads;
    for (int i = 0; i < n; ++i) threads.emplace_back(body, i);
    for (std::thread & thread : threads) thread.join();
}

eliza_llm_stream_config_t endless_config() {
    eliza_llm_stream_config_t cfg = full_precision_config();
    cfg.gbnf_grammar = "root ::= [a-z ]{1999}";
    return cfg;
}

std::vector<int32_t> prompt_of(const ContextHandle & context, int i) {
    return tokenize(context, "Request number " + std::to_string(i) + ": please send an answer to all", true);
}

// Streams that generate continuously until the object is destroyed.
class Generating {
public:
    Generating(const ContextHandle & context, int n) {
        for (int i = 0; i < n; ++i) {
            streams_.push_back(open(context, endless_config()));
            prefill(streams_.back(), prompt_of(context, i));
        }
        for (const StreamHandle & stream : streams_) {
            threads_.emplace_back([&] {
                while (!stopped_) {
                    const Output output = pull(stream, 400);
                    if (output.status < 0 || output.tokens.empty()) return;
                    n_tokens_ += static_cast<int>(output.tokens.size());
                    eliza_inference_llm_stream_reset_keep(stream.get(), 8);
                }
            });
        }
        for (const StreamHandle & stream : streams_) {
            while (stats_of(stream) < 5) std::this_thread::yield();
        }
    }
    ~Generating() {
        stopped_ = true;
        for (const StreamHandle & stream : streams_) eliza_inference_llm_stream_cancel(stream.get());
        for (std::thread & thread : threads_) thread.join();
    }
    int n_tokens() const { return n_tokens_; }

private:
    // While a call is running, the stream rejects other calls.
    static int64_t stats_of(const StreamHandle & stream) {
        eliza_llm_stream_stats_t stats{};
        const int status = eliza_inference_llm_stream_stats(stream.get(), &stats, sizeof stats);
        return status == 0 ? stats.generated_tokens : 5;
    }

    std::vector<StreamHandle> streams_;
    std::atomic<bool> stopped_{false};
    std::atomic<int> n_tokens_{0};
    std::vector<std::thread> threads_;
};

TEST(SharedPasses, GiveEachStreamTheSameTokensAsAlone) {
    constexpr int n_streams = 8;
    const auto run = [](const ContextHandle & context, int i) {
        const StreamHandle stream = open(context, endless_config());
        prefill(stream, prompt_of(context, i));
        return pull(stream, 60).tokens;
    };
    const ContextHandle alone = create_f32({{"batching", "off"}});
    std::vector<std::vector<int32_t>> expected, got(n_streams);
    for (int i = 0; i < n_streams; ++i) expected.push_back(run(alone, i));
    const ContextHandle context = create_f32();
    on_threads(n_streams, [&](int i) { got[static_cast<size_t>(i)] = run(context, i); });
    EXPECT_EQ(got, expected);
}

TEST(SharedPasses, AreCounted) {
    const ContextHandle context = create_f32();
    std::vector<StreamHandle> streams;
    for (int i = 0; i < 4; ++i) {
        streams.push_back(open(context, endless_config()));
        prefill(streams.back(), prompt_of(context, i));
    }
    on_threads(4, [&](int i) { pull(streams[static_cast<size_t>(i)], 100); });
    for (const StreamHandle & stream : streams) {
        const eliza_llm_stream_stats_t counts = stats(stream);
        EXPECT_GT(counts.passes_shared, 0);
        EXPECT_LE(counts.passes_shared, counts.forward_passes);
        EXPECT_GE(counts.sequences, counts.forward_passes + counts.passes_shared);
        EXPECT_LE(counts.sequences, 4 * counts.forward_passes);
        EXPECT_GE(counts.wait_us, 0);
    }
}

TEST(SharedPasses, DoNotHappenIfBatchingIsOff) {
    const ContextHandle context = create_f32({{"batching", "off"}});
    std::vector<StreamHandle> streams;
    for (int i = 0; i < 4; ++i) {
        streams.push_back(open(context, endless_config()));
        prefill(streams.back(), prompt_of(context, i));
    }
    on_threads(4, [&](int i) { pull(streams[static_cast<size_t>(i)], 50); });
    for (const StreamHandle & stream : streams) {
        EXPECT_EQ(stats(stream).passes_shared, 0);
        EXPECT_EQ(stats(stream).sequences, stats(stream).forward_passes);
    }
}

// Uses the quantized model, where a different batch would change the third digit. Each text always uses the same slot,
// because the order of sums depends on the cells.
TEST(SharedPasses, ScoresAreBitIdenticalIfBatchingIsOff) {
    const ContextHandle context = create({{"batching", "off"}, {"n_threads", "1"}, {"n_slots", "8"}});
    const std::string choices = payload_of(context, action_names);
    const auto scores = [&](int i) {
        eliza_llm_stream_config_t cfg = config();
        cfg.slot_id = i;
        const StreamHandle stream = open(context, cfg);
        prefill(stream, tokenize(context, std::to_string(i) + " is the request. Next action: ", true));
        set_trie(stream, choices, ELIZA_TRIE_BEST_LEAF);
        std::vector<double> logprobs(action_names.size());
        EXPECT_GT(eliza_inference_token_trie_scores(stream.get(), logprobs.data(), logprobs.size()), 0);
        return logprobs;
    };
    std::vector<std::vector<double>> expected, got(8);
    for (int i = 0; i < 8; ++i) expected.push_back(scores(i));
    for (int round = 0; round < 5; ++round) {
        on_threads(8, [&](int i) { got[static_cast<size_t>(i)] = scores(i); });
        EXPECT_EQ(got, expected);
    }
}

// The waiting time is counted in passes, so that the test does not depend on the machine's speed. In each round, a new
// sequence makes two requests: a prompt of 64 tokens, then one more token. Each request waits for at most two passes: a
// pass that is already running, and its own. If the operating system makes this thread wait for a core, more passes run
// before the request. Therefore only half of the rounds must succeed.
TEST(SharedPasses, ANewRequestIsServedInTheNextPasses) {
    const std::shared_ptr<Model> model = Model::load(f32_model_path(), {});
    eliza::Options options;
    options.n_ctx = 4096;
    options.n_threads = 1;
    const auto decoder = std::make_shared<Decoder>(model, std::make_shared<ComputeThreads>(options.n_threads), options,
                                                   DecoderSettings{{GGML_TYPE_F32, GGML_TYPE_F32}});
    std::atomic<bool> stopped{false};
    CancelFlag never;
    std::atomic<int> n_started{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 7; ++i) {
        threads.emplace_back([&, i] {
            Sequence sequence(decoder, {}, never);
            sequence.append(std::vector<llama_token>(8, 60 + i).data(), 8);
            for (bool first = true; !stopped; first = false) {
                sequence.append(argmax(sequence.logits(), model->n_vocab()));
                n_started += first ? 1 : 0;
                if (sequence.tokens().size() > 400) sequence.truncate(8);
            }
        });
    }
    while (n_started < 7) std::this_thread::yield();
    constexpr int n_rounds = 20;
    int n_in_time = 0;
    for (int round = 0; round < n_rounds; ++round) {
        Sequence eighth(decoder, {}, never);
        eighth.append(std::vector<llama_token>(64, 100 + round).data(), 64);
        const int64_t before = decoder->queue().scheduler().n_passes();
        eighth.decode(Rows::some);
        const bool first_in_time = decoder->queue().scheduler().n_passes() - before <= 2;
        eighth.append(7);
        eighth.decode(Rows::some);
        EXPECT_EQ(eighth.counts().forward_passes, 2);
        n_in_time += first_in_time && decoder->queue().scheduler().n_passes() - before <= 2 + 2 ? 1 : 0;
    }
    EXPECT_GE(n_in_time, n_rounds / 2);
    stopped = true;
    for (std::thread & thread : threads) thread.join();
}

TEST(SharedPasses, ALongPromptDoesNotBlockGeneration) {
    const ContextHandle context = create_f32({{"n_ctx", "8192"}, {"n_batch", "128"}});
    const StreamHandle generating = open(context, endless_config());
    prefill(generating, prompt_of(context, 1));
    std::atomic<bool> read{false};
    std::thread reader([&] {
        const StreamHandle stream = open(context, full_precision_config());
        prefill(stream, std::vector<int32_t>(5000, 60));
        EXPECT_GE(stats(stream).forward_passes, 40);
        read = true;
    });
    int n_meanwhile = 0;
    while (!read) n_meanwhile += pull(generating, 1).tokens.empty() ? 0 : 1;
    reader.join();
    EXPECT_GE(n_meanwhile, 10);
}

TEST(SharedPasses, AFullContextEndsNoStream) {
    const ContextHandle context = create_f32({{"n_ctx", "1024"}, {"n_slots", "4"}});
    std::vector<std::vector<int32_t>> got(3);
    std::vector<int> status(4, 0);
    const auto run = [&](const ContextHandle & in, int i) {
        const StreamHandle stream = open(in, endless_config());
        prefill(stream, prompt_of(in, i));
        return pull(stream, 80);
    };
    on_threads(4, [&](int i) {
        if (i < 3) {
            Output output = run(context, i);
            status[static_cast<size_t>(i)] = output.status;
            got[static_cast<size_t>(i)] = std::move(output.tokens);
            return;
        }
        // There is room for 300 tokens besides the others' tokens, but not for 1000: one of them waits for the other.
        const StreamHandle stream = open(context, full_precision_config());
        ErrorText error;
        const std::vector<int32_t> prompt(1000, 60);
        status[3] = eliza_inference_llm_stream_prefill(stream.get(), prompt.data(), prompt.size(), error.out());
        EXPECT_EQ(status[3], 0) << error.text();
    });
    const ContextHandle alone = create_f32({{"batching", "off"}});
    for (int i = 0; i < 3; ++i) {
        EXPECT_GE(status[static_cast<size_t>(i)], 0);
        EXPECT_EQ(got[static_cast<size_t>(i)], run(alone, i).tokens);
    }
}

TEST(SharedPasses, ACancelledStreamDoesNotStopOthers) {
    const ContextHandle context = create_f32({{"n_ctx", "16384"}, {"n_batch", "4096"}});
    const ContextHandle alone = create_f32({{"batching", "off"}});
    const auto run = [](const ContextHandle & in, int i) {
        const StreamHandle stream = open(in, endless_config());
        prefill(stream, prompt_of(in, i));
        return pull(stream, 60).tokens;
    };
    std::vector<std::vector<int32_t>> got(3);
    std::atomic<int> n_left{3}, n_cancelled{0};
    on_threads(4, [&](int i) {
        if (i < 3) {
            got[static_cast<size_t>(i)] = run(context, i);
            --n_left;
            return;
        }
        const StreamHandle stream = open(context, full_precision_config());
        const std::vector<int32_t> prompt(3000, 60);
        for (int round = 0; n_left > 0 && round < 100; ++round) {
            std::thread canceller([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(round % 7));
                eliza_inference_llm_stream_cancel(stream.get());
            });
            const int status = eliza_inference_llm_stream_prefill(stream.get(), prompt.data(), prompt.size(), nullptr);
            canceller.join();
            n_cancelled += status == ELIZA_ERR_CANCELLED ? 1 : 0;
            eliza_inference_llm_stream_reset(stream.get());
        }
    });
    EXPECT_GT(n_cancelled, 0);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], run(alone, i));
}

TEST(SharedPasses, ACommonBeginningOfPromptsIsDecodedOnce) {
    const ContextHandle context = create_f32({{"n_ctx", "8192"}});
    constexpr int n_streams = 4;
    const std::vector<int32_t> beginning(1000, 60);
    std::vector<StreamHandle> streams;
    for (int i = 0; i < n_streams; ++i) streams.push_back(open(context, full_precision_config()));
    on_threads(n_streams, [&](int i) {
        std::vector<int32_t> prompt = beginning;
        prompt.push_back(100 + i);
        prefill(streams[static_cast<size_t>(i)], prompt);
    });
    int64_t n_decoded = 0;
    for (const StreamHandle & stream : streams) {
        n_decoded += stats(stream).prompt_tokens - stats(stream).prompt_tokens_reused;
    }
    EXPECT_LE(n_decoded, 1000 + 4 * 100);  // once, plus small parts that were not worth waiting for
}

TEST(SharedPasses, TreesOfSeveralStreamsShareThePassAndItsLanes) {
    const ContextHandle context = create_f32({{"strategy", "tree"}, {"n_slots", "16"}});
    const ContextHandle alone = create_f32({{"strategy", "token-by-token"}, {"batching", "off"}});
    const auto scores = [](const ContextHandle & in, int i) {
        const StreamHandle stream = open(in, full_precision_config());
        prefill(stream, prompt_of(in, i));
        set_trie(stream, payload_of(in, action_names), ELIZA_TRIE_BEST_LEAF);
        std::vector<double> logprobs(action_names.size());
        EXPECT_GT(eliza_inference_token_trie_scores(stream.get(), logprobs.data(), logprobs.size()), 0)
            << eliza_inference_last_error(stream.get());
        return logprobs;
    };
    std::vector<std::vector<double>> got(16);
    on_threads(16, [&](int i) { got[static_cast<size_t>(i)] = scores(context, i); });
    for (int i = 0; i < 16; ++i) {
        const std::vector<double> expected = scores(alone, i);
        for (size_t leaf = 0; leaf < expected.size(); ++leaf) {
            EXPECT_NEAR(got[static_cast<size_t>(i)][leaf], expected[leaf], 1e-3) << i << ", leaf " << leaf;
        }
    }
}

TEST(SharedPasses, PromptsInPassesOfOneTokenTerminate) {
    const ContextHandle context = create_f32({{"n_batch", "1"}, {"n_slots", "3"}});
    const ContextHandle alone = create_f32({{"batching", "off"}});
    const auto run = [](const ContextHandle & in, int i) {
        const StreamHandle stream = open(in, endless_config());
        prefill(stream, prompt_of(in, i));
        return pull(stream, 10).tokens;
    };
    std::vector<std::vector<int32_t>> got(3);
    on_threads(3, [&](int i) { got[static_cast<size_t>(i)] = run(context, i); });
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[static_cast<size_t>(i)], run(alone, i));
}

// ---- Waiting for a slot ---------------------------------------------------------------------------

TEST(WaitingForASlot, EveryRequestGetsOne) {
    const ContextHandle context = create_f32({{"n_slots", "2"}});
    std::atomic<int> n_done{0};
    on_threads(12, [&](int i) {
        const StreamHandle stream = open(context, endless_config());
        if (stream == nullptr) return;
        prefill(stream, prompt_of(context, i));
        n_done += pull(stream, 5).tokens.size() == 5 ? 1 : 0;
    });
    EXPECT_EQ(n_done, 12);
}

TEST(WaitingForASlot, EndsWithBusyAfterTheTimeout) {
    const ContextHandle context = create_f32({{"n_slots", "2"}, {"slot_wait_ms", "0"}});
    eliza_llm_stream_config_t cfg = config();
    cfg.slot_id = 1;
    StreamHandle one = open(context, cfg), other = open(context);
    const auto busy = [&](const eliza_llm_stream_config_t & wanted) {
        ErrorText error;
        EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &wanted, error.out()), nullptr);
        return error.text();
    };
    EXPECT_EQ(busy(config()), "all 2 slots are in use by open streams (options n_slots, slot_wait_ms)");
    EXPECT_EQ(busy(cfg), "slot 1 is in use by another open stream (option slot_wait_ms)");
    EXPECT_EQ(eliza_inference_set_option(context.get(), "slot_wait_ms", "30", nullptr), 0);
    EXPECT_EQ(busy(cfg), "slot 1 is in use by another open stream after 30 ms (option slot_wait_ms)");
    int32_t token = 5;
    EXPECT_EQ(eliza_inference_llm_eot_score(context.get(), &token, 1, 5, nullptr, nullptr, nullptr, nullptr),
              ELIZA_ERR_BUSY);
    other.reset();
    EXPECT_NE(open(context), nullptr);
}

TEST(WaitingForASlot, EndsWithTheContext) {
    ContextHandle context = create_f32({{"n_slots", "1"}});
    const StreamHandle taken = open(context);
    std::atomic<bool> began{false};
    ErrorText error;
    EliLlmStream * stream = nullptr;
    std::thread waiting([&, handle = context.get()] {
        began = true;
        stream = eliza_inference_llm_stream_open(handle, nullptr, error.out());
    });
    while (!began) std::this_thread::yield();
    context.reset();
    waiting.join();
    EXPECT_EQ(stream, nullptr);
    EXPECT_NE(error.text().find("destroyed"), std::string::npos) << error.text();
}

TEST(WaitingForASlot, IsOverWhenCloseReturns) {
    const ContextHandle context = create_f32({{"n_slots", "1"}, {"slot_wait_ms", "0"}});
    for (int round = 0; round < 300; ++round) {
        EliLlmStream * stream = eliza_inference_llm_stream_open(context.get(), nullptr, nullptr);
        ASSERT_NE(stream, nullptr) << round;
        std::thread runner([&] {
            const int32_t prompt[] = {5, 6, 7};
            eliza_inference_llm_stream_prefill(stream, prompt, 3, nullptr);
            eliza_inference_llm_stream_generate(
                stream, 3, [](int32_t, const char *, void *) { return 0; }, nullptr, nullptr);
        });
        if (round % 2 == 0) std::this_thread::yield();
        eliza_inference_llm_stream_close(stream);
        const StreamHandle next = open(context);
        ASSERT_NE(next, nullptr) << round;
        runner.join();
    }
}

}  // namespace
}  // namespace eliza::test
