// eliza_inference_llm_stream_next_many(): the same steps as next(), in fewer calls.

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "test_session.h"

namespace eliza::test {
namespace {

using Tokens = std::vector<int32_t>;

struct Caps {
    uint32_t most_ms = 60000;
    size_t tokens = 64;
    size_t text = 1024;
};

// Calls next_many() until the end, an error, or until `limit` tokens. Counts the calls.
Output pull_many(const StreamHandle & stream, size_t limit, int & n_calls, const Caps & caps = {}) {
    Output output;
    ErrorText error;
    std::vector<char> text(caps.text);
    while (output.tokens.size() < limit) {
        Tokens tokens(std::min(caps.tokens, limit - output.tokens.size()));
        uint64_t n = 0;
        ++n_calls;
        output.status =
            eliza_inference_llm_stream_next_many(stream.get(), caps.most_ms, tokens.data(), tokens.size(), &n,
                                                 text.data(), text.size(), nullptr, nullptr, error.out());
        if (output.status < 0) {
            output.error = error.text();
            break;
        }
        output.tokens.insert(output.tokens.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(n));
        output.text += text.data();
        if (output.status == 1) break;
    }
    return output;
}

class NextMany : public testing::Test {
protected:
    ContextHandle context = create({{"n_ctx", "2048"}, {"n_threads", "1"}, {"seed", "7"}}, f32_model_path());

    Tokens prompt(int i) { return tokenize(context, "Request number " + std::to_string(i) + ": please", true); }

    StreamHandle prompted(eliza_llm_stream_config_t cfg, int i = 0) {
        StreamHandle stream = open(context, cfg);
        prefill(stream, prompt(i));
        return stream;
    }
};

void expect_same(const Output & many, const Output & single) {
    EXPECT_EQ(many.tokens, single.tokens);
    EXPECT_EQ(many.text, single.text);
    EXPECT_EQ(many.status, single.status);
    EXPECT_EQ(many.error, single.error);
}

TEST_F(NextMany, TheStepsAreThoseOfNext) {
    for (const float temperature : {0.0f, 1.5f}) {
        for (const char * grammar : {"", long_text_grammar}) {
            for (const int max_tokens : {0, 37}) {
                eliza_llm_stream_config_t cfg = full_precision_config();
                cfg.temperature = temperature;
                cfg.gbnf_grammar = grammar;
                cfg.max_tokens = max_tokens;
                const StreamHandle many = prompted(cfg), single = prompted(cfg);
                int n_calls = 0;
                const Output ours = pull_many(many, 90, n_calls);
                expect_same(ours, pull(single, 90));
                EXPECT_LE(n_calls, 3);
                EXPECT_EQ(stats(many).generated_tokens, stats(single).generated_tokens);
                EXPECT_EQ(stats(many).tokens_sampled, stats(single).tokens_sampled);
                EXPECT_EQ(stats(many).forward_passes, stats(single).forward_passes);
                EXPECT_EQ(stats(many).finish_reason, stats(single).finish_reason);
            }
        }
    }
}

TEST_F(NextMany, WithoutTimeItReturnsOneToken) {
    const StreamHandle stream = prompted(full_precision_config());
    int n_calls = 0;
    EXPECT_EQ(pull_many(stream, 5, n_calls, {0, 64, 1024}).tokens.size(), 5u);
    EXPECT_EQ(n_calls, 5);
}

TEST_F(NextMany, TokensWhoseTextDoesNotFitAreReturnedByTheNextCall) {
    int i = 0;  // a prompt after which the model writes a long text
    while (pull(prompted(full_precision_config(), i), 60).tokens.size() < 60) ASSERT_LT(++i, 50);
    const Output single = pull(prompted(full_precision_config(), i), 60);
    const StreamHandle tight = prompted(full_precision_config(), i);
    int n_calls = 0;
    const Output output = pull_many(tight, 60, n_calls, {60000, 64, 32});
    EXPECT_EQ(output.tokens, single.tokens);
    EXPECT_EQ(output.text, single.text);
    EXPECT_GT(n_calls, 1);
}

TEST_F(NextMany, ItReturnsAfterTheTokenThatCompletesAStopString) {
    eliza_llm_stream_config_t cfg = full_precision_config();
    cfg.gbnf_grammar = "root ::= (\"one\" | \" two\" | \", \")+";
    for (const bool greedy : {true, false}) {
        cfg.temperature = greedy ? 0.0f : 1.0f;
        const Output whole = pull(prompted(cfg), 60);
        for (const std::vector<const char *> & texts :
             {std::vector<const char *>{"two"}, {"e, ", "e t"}, {"never", "o"}, {", one, "}}) {
            const StreamHandle stream = prompted(cfg);
            ErrorText error;
            ASSERT_EQ(eliza_inference_llm_stream_set_stops(stream.get(), texts.data(), texts.size(), error.out()), 0)
                << error.text();
            int n_calls = 0;
            const Output first = pull_many(stream, 60, n_calls);
            ASSERT_EQ(first.tokens, whole.tokens) << "the calls continue the generation";
            size_t n_found = 0;  // texts do not overlap a step that completed one
            const StreamHandle single = prompted(cfg);
            std::string text;
            for (size_t i = 0; i < whole.tokens.size(); ++i) {
                text += pull(single, 1).text;
                for (const char * stop : texts) {
                    if (text.find(stop) != std::string::npos) {
                        ++n_found;
                        text.clear();
                        break;
                    }
                }
            }
            const bool at_end = text.empty() && first.status == 0;
            EXPECT_EQ(static_cast<size_t>(n_calls), n_found + (at_end ? 0 : 1));
        }
    }
}

TEST_F(NextMany, StopStringsAreFoundInTokensThatWait) {
    eliza_llm_stream_config_t cfg = full_precision_config();
    cfg.gbnf_grammar = "root ::= [a-z]{60}";
    const StreamHandle stream = prompted(cfg);
    const auto pull_once = [&](size_t text_cap) {
        std::vector<int32_t> tokens(64);
        std::vector<char> text(text_cap);
        uint64_t n = 0;
        EXPECT_EQ(eliza_inference_llm_stream_next_many(stream.get(), 60000, tokens.data(), tokens.size(), &n,
                                                       text.data(), text.size(), nullptr, nullptr, nullptr),
                  0);
        return std::string(text.data());
    };
    const StreamHandle other = prompted(cfg);
    const std::string first = pull(other, 1).text, second = pull(other, 1).text;
    ASSERT_FALSE(first.empty() || second.empty());
    EXPECT_EQ(pull_once(first.size() + 1), first);
    const char * stop = second.c_str();  // the second token waits: its text did not fit
    ASSERT_EQ(eliza_inference_llm_stream_set_stops(stream.get(), &stop, 1, nullptr), 0);
    EXPECT_EQ(pull_once(1024), second);
}

TEST_F(NextMany, AControlTokenMayBeAStop) {
    const Tokens control = tokenize(context, "<|im_start|>", false, true), word = tokenize(context, " a");
    ASSERT_EQ(control.size(), 1u);
    Tokens tokens = word;
    tokens.insert(tokens.end(), {control[0], word[0]});
    const auto n_pulled = [&](const char * stop, size_t cap) {
        const StreamHandle stream = prompted(full_precision_config());
        EXPECT_EQ(eliza_inference_llm_stream_set_stops(stream.get(), &stop, 1, nullptr), 0);
        EXPECT_EQ(eliza_inference_llm_stream_set_forced_tokens(stream.get(), tokens.data(), tokens.size(), nullptr), 0);
        Tokens found(cap);
        uint64_t n = 0;
        char text[1024];
        EXPECT_EQ(eliza_inference_llm_stream_next_many(stream.get(), 60000, found.data(), cap, &n, text, sizeof text,
                                                       nullptr, nullptr, nullptr),
                  0);
        return n;
    };
    EXPECT_EQ(n_pulled("<|im_start|>", tokens.size()), word.size() + 1);
    EXPECT_EQ(n_pulled("<|im_start", tokens.size()), tokens.size());
}

TEST_F(NextMany, StopStringsMustNotBeEmpty) {
    const StreamHandle stream = prompted(full_precision_config());
    const char * texts[] = {"fine", ""};
    ErrorText error;
    EXPECT_LT(eliza_inference_llm_stream_set_stops(stream.get(), texts, 2, error.out()), 0);
    EXPECT_EQ(error.text(), "stops[1] is empty");
}

TEST_F(NextMany, TokensThatWaitCanBeTakenOneByOne) {
    int i = 0;
    while (pull(prompted(full_precision_config(), i), 60).tokens.size() < 60) ASSERT_LT(++i, 50);
    const Output single = pull(prompted(full_precision_config(), i), 60);
    const StreamHandle stream = prompted(full_precision_config(), i);
    int32_t tokens[60];
    uint64_t n = 0;
    char text[32];
    ASSERT_EQ(eliza_inference_llm_stream_next_many(stream.get(), 60000, tokens, 60, &n, text, sizeof text, nullptr,
                                                   nullptr, nullptr),
              0);
    EXPECT_LT(n, 60u);
    const Output rest = pull(stream, 60 - n);
    Tokens all(tokens, tokens + n);
    all.insert(all.end(), rest.tokens.begin(), rest.tokens.end());
    EXPECT_EQ(all, single.tokens);
}

TEST_F(NextMany, AnErrorComesAfterTheTokensBeforeIt) {
    context = create({{"n_ctx", "256"}, {"n_threads", "1"}}, f32_model_path());
    eliza_llm_stream_config_t cfg = full_precision_config();
    cfg.gbnf_grammar = "root ::= [a-z ]{1999}";
    int n_calls = 0;
    const Output single = pull(prompted(cfg));  // one stream at a time: they share the context
    EXPECT_EQ(single.status, ELIZA_ERR_CONTEXT_FULL);
    expect_same(pull_many(prompted(cfg), 1000, n_calls), single);

    StreamHandle plain = prompted(full_precision_config());
    const Output output = pull_many(plain, 1000, n_calls);
    const auto reason = stats(plain).finish_reason;
    plain.reset();
    expect_same(output, pull(prompted(full_precision_config())));
    EXPECT_EQ(reason, output.status == 1 ? ELIZA_FINISH_END : ELIZA_FINISH_CONTEXT_FULL);
}

TEST_F(NextMany, ACancelEndsTheCall) {
    const StreamHandle stream = prompted(full_precision_config()), same = prompted(full_precision_config());
    std::thread canceller([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        eliza_inference_llm_stream_cancel(stream.get());
    });
    int n_calls = 0;
    const Output output = pull_many(stream, 1500, n_calls, {60000, 1500, 1 << 20});
    canceller.join();
    EXPECT_NE(output.status, 0);  // cancelled, or the model ended its text before
    eliza_inference_llm_stream_reset(stream.get());
    prefill(stream, prompt(0));
    expect_same(pull_many(stream, 40, n_calls), pull(same, 40));
}

TEST_F(NextMany, ACancelAfterTheFirstTokensAlsoEndsAPrefill) {
    eliza_llm_stream_config_t with_grammar = full_precision_config(), sampled = full_precision_config();
    with_grammar.gbnf_grammar = long_text_grammar;  // one token at a time
    sampled.temperature = 1.5f;                     // many tokens without waking the thread
    const Tokens tokens = prompt(1);
    for (const eliza_llm_stream_config_t & cfg : {with_grammar, sampled}) {
        int n_reported = 0;
        for (int milliseconds = 1; milliseconds < 100 && n_reported < 3; ++milliseconds) {
            const StreamHandle stream = prompted(cfg);
            std::thread canceller([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
                eliza_inference_llm_stream_cancel(stream.get());
            });
            Tokens generated(1500);
            std::vector<char> text(1 << 16);
            uint64_t n = 0;
            const int status =
                eliza_inference_llm_stream_next_many(stream.get(), 60000, generated.data(), generated.size(), &n,
                                                     text.data(), text.size(), nullptr, nullptr, nullptr);
            canceller.join();
            if (status != 0) continue;  // cancelled before the first token, or the text has ended
            EXPECT_EQ(eliza_inference_llm_stream_prefill(stream.get(), tokens.data(), tokens.size(), nullptr),
                      ELIZA_ERR_CANCELLED);
            prefill(stream, tokens);
            ++n_reported;
        }
        EXPECT_EQ(n_reported, 3);
    }
}

TEST_F(NextMany, ManyStreamsGenerateWhatEachGeneratesAlone) {
    constexpr int n_streams = 8;
    std::vector<StreamHandle> streams;
    std::vector<Output> alone, together(n_streams);
    for (int i = 0; i < n_streams; ++i) {
        alone.push_back(pull(prompted(full_precision_config(), i), 60));
        streams.push_back(prompted(full_precision_config(), i));
    }
    std::vector<std::thread> threads;
    for (size_t i = 0; i < n_streams; ++i) {
        threads.emplace_back([&, i] {
            int n_calls = 0;
            together[i] = pull_many(streams[i], 60, n_calls);
        });
    }
    for (std::thread & thread : threads) thread.join();
    for (size_t i = 0; i < n_streams; ++i) {
        expect_same(together[i], alone[i]);
    }
}

TEST_F(NextMany, ChoicesMasksAndForcedTokensWork) {
    const std::string json = payload_of(context, action_names);
    const StreamHandle many = prompted(full_precision_config()), single = prompted(full_precision_config());
    const Tokens forced = tokenize(context, "All is well");
    int n_calls = 0;
    for (const StreamHandle * stream : {&many, &single}) {
        ASSERT_EQ(eliza_inference_llm_stream_set_forced_tokens(stream->get(), forced.data(), forced.size(), nullptr),
                  0);
    }
    expect_same(pull_many(many, 20, n_calls), pull(single, 20));
    for (const StreamHandle * stream : {&many, &single}) {
        set_trie(*stream, json, ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
    }
    expect_same(pull_many(many, 100, n_calls), pull(single, 100));
    EXPECT_EQ(n_calls, 2);
}

}  // namespace
}  // namespace eliza::test
