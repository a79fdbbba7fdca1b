// Speculative decoding changes only the number of passes. The tokens are the same with drafters that agree always,
// sometimes and never, and events and counts are consistent.
//
// The tests use full precision, where a batch differs from single tokens only by the order of sums.

#include <algorithm>
#include <cmath>
#include <thread>

#include "test_session.h"

namespace eliza::test {
namespace {

class Speculation : public testing::Test {
protected:
    ContextHandle context = create({{"n_ctx", "1024"}, {"n_threads", "1"}}, f32_model_path());
    // A list that the model continues for ever.
    const std::string endless = "Actions:\n- ";
    // Its end repeats earlier text, which n-grams detect.
    const std::string repeating = "one two three four five six. one two three four five six. one two three four";

    struct Settings {
        Settings(int n = 0, std::string model = "", std::string gbnf = "", float penalty = 1.0f, float heat = 0.0f)
            : draft_max(n),
              drafter(std::move(model)),
              grammar(std::move(gbnf)),
              repeat_penalty(penalty),
              temperature(heat) {}
        int draft_max;  // 0: none
        std::string drafter;
        std::string grammar;
        float repeat_penalty;
        float temperature;
    };
    StreamHandle open_with(const Settings & settings) {
        eliza_llm_stream_config_t cfg = full_precision_config();
        cfg.draft_min = settings.draft_max > 0 ? 1 : 0;
        cfg.draft_max = settings.draft_max;
        cfg.mtp_drafter_path = settings.drafter.empty() ? nullptr : settings.drafter.c_str();
        cfg.gbnf_grammar = settings.grammar.empty() ? nullptr : settings.grammar.c_str();
        cfg.repeat_penalty = settings.repeat_penalty;
        cfg.temperature = settings.temperature;
        return open(context, cfg);
    }
    struct Run {
        Output output;
        eliza_llm_stream_stats_t counts{};
    };
    Run run(const Settings & settings, const std::string & prompt, size_t n = 40) {
        const StreamHandle stream = open_with(settings);
        prefill(stream, tokenize(context, prompt, true));
        Run result;
        result.output = pull(stream, n);
        EXPECT_GE(result.output.status, 0) << result.output.error;
        result.output.tokens.resize(std::min(n, result.output.tokens.size()));
        result.counts = stats(stream);
        return result;
    }
    void expect_the_same(Settings settings, const std::string & prompt) {
        const int draft_max = settings.draft_max;
        settings.draft_max = 0;
        const std::string drafter = std::exchange(settings.drafter, "");
        const std::vector<int32_t> expected = run(settings, prompt).output.tokens;
        settings.draft_max = draft_max;
        settings.drafter = drafter;
        EXPECT_EQ(run(settings, prompt).output.tokens, expected);
    }
};

TEST_F(Speculation, GivesTheSameTokens) {
    for (const std::string & drafter : {std::string(), f32_model_path(), model_path()}) {
        for (const int draft_max : {1, 4, 9}) {
            for (const std::string & prompt :
                 {repeating, std::string("Say hello. "), std::string("{\"a\": 1, \"b\": ")}) {
                expect_the_same({draft_max, drafter}, prompt);
                expect_the_same({draft_max, drafter, "", 1.3f}, prompt);
                expect_the_same({draft_max, drafter, "root ::= ([a-z] [a-z] [a-z] \" \")+"}, prompt);
            }
        }
    }
}

TEST_F(Speculation, GivesTheSameDraws) {
    ASSERT_EQ(eliza_inference_set_option(context.get(), "seed", "5", nullptr), 0);
    for (const std::string & drafter : {std::string(), f32_model_path()}) {
        expect_the_same({4, drafter, "", 1.0f, 0.8f}, repeating);
    }
}

TEST_F(Speculation, SharesPassesWithOtherStreams) {
    const std::vector<Settings> all = {{4, model_path()}, {4, f32_model_path()}, {4}, {}};
    std::vector<std::vector<int32_t>> got(all.size());
    const std::vector<int32_t> expected = run({}, repeating).output.tokens;
    context = create({{"n_ctx", "2048"}, {"n_threads", "1"}, {"n_slots", "4"}}, f32_model_path());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < all.size(); ++i) {
        threads.emplace_back([&, i] { got[i] = run(all[i], repeating).output.tokens; });
    }
    for (std::thread & thread : threads) thread.join();
    for (const std::vector<int32_t> & tokens : got) EXPECT_EQ(tokens, expected);
}

TEST_F(Speculation, ContinuesAfterCancelsInPasses) {
    const std::vector<int32_t> expected = run({}, repeating).output.tokens;
    for (const std::string & drafter : {std::string(), f32_model_path(), model_path()}) {
        const StreamHandle stream = open_with({4, drafter});
        prefill(stream, tokenize(context, repeating, true));
        EXPECT_EQ(push_despite_cancels(stream, expected.size()), expected);
    }
}

TEST_F(Speculation, ADrafterThatAgreesSavesPasses) {
    const Run alone = run({}, endless);
    const Run with = run({4, f32_model_path()}, endless);
    EXPECT_EQ(with.output.tokens, alone.output.tokens);
    EXPECT_EQ(with.counts.tokens_accepted, with.counts.tokens_drafted);
    EXPECT_GT(with.counts.tokens_drafted, 20);
    EXPECT_LT(with.counts.forward_passes, alone.counts.forward_passes / 3);
}

TEST_F(Speculation, NGramsSavePassesIfTheTextRepeats) {
    const std::string grammar = "root ::= (\"one two three four \")+";
    const Run alone = run({0, "", grammar}, "Count: ");
    const Run with = run({4, "", grammar}, "Count: ");
    EXPECT_EQ(with.output.tokens, alone.output.tokens);
    EXPECT_GT(with.counts.tokens_accepted, 10);
    EXPECT_LT(with.counts.forward_passes, alone.counts.forward_passes);
}

TEST_F(Speculation, ADrafterThatNeverAgreesIsNeverFollowed) {
    // The grammar requires text that no drafter would predict.
    const Run with = run({4, f32_model_path(), R"(root ::= "xk7!qv0Zj%4wP2hR9bY5mT1sD8fG3nL6cK")"}, "Say hello. ");
    EXPECT_EQ(with.output.text, "xk7!qv0Zj%4wP2hR9bY5mT1sD8fG3nL6cK");
    EXPECT_GT(with.counts.tokens_drafted, 20);
    EXPECT_LE(with.counts.tokens_accepted, 1);
}

TEST_F(Speculation, EventsReportTheOutcomeOfEveryDraft) {
    struct Event {
        std::vector<int> accepted, corrected;
        int from, to;
    };
    static std::vector<Event> events;
    events.clear();
    const auto record = [](const EliVerifierEvent * e, void * user) {
        EXPECT_EQ(user, &events);
        events.push_back({{e->accepted_token_ids, e->accepted_token_ids + e->n_accepted},
                          {e->corrected_token_ids, e->corrected_token_ids + e->n_corrected},
                          e->rejected_from,
                          e->rejected_to});
    };
    ASSERT_EQ(eliza_inference_set_verifier_callback(context.get(), record, &events, nullptr), 0);
    // The drafter does not know about the penalty.
    const StreamHandle stream = open_with({4, f32_model_path(), "", 1.5f});
    prefill(stream, tokenize(context, endless, true));
    std::vector<int32_t> tokens;
    int64_t drafted = 0, accepted = 0;
    for (int status = 0; status == 0 && tokens.size() < 60;) {
        int32_t out[32], n_drafted = -1, n_accepted = -1;
        size_t n = 0;
        char text[1024];
        status = eliza_inference_llm_stream_next(stream.get(), out, 32, &n, text, sizeof text, &n_drafted, &n_accepted,
                                                 nullptr);
        ASSERT_GE(status, 0);
        tokens.insert(tokens.end(), out, out + n);
        drafted += n_drafted;
        accepted += n_accepted;
    }
    ASSERT_FALSE(events.empty());
    int64_t in_events = 0, all_in_events = 0;
    for (const Event & event : events) {
        in_events += static_cast<int64_t>(event.accepted.size());
        all_in_events += static_cast<int64_t>(event.accepted.size());
        if (event.from >= 0) {
            ASSERT_LE(event.from, event.to);
            all_in_events += event.to - event.from + 1;
            ASSERT_EQ(event.corrected.size(), 1u);
            const auto at = static_cast<size_t>(event.from);
            if (at < tokens.size()) {
                EXPECT_EQ(tokens[at], event.corrected[0]);
            }
            ASSERT_GE(at, event.accepted.size());
            EXPECT_TRUE(std::equal(event.accepted.begin(), event.accepted.end(),
                                   tokens.begin() + static_cast<long>(at - event.accepted.size())));
        } else {
            EXPECT_EQ(event.to, -1);
            EXPECT_TRUE(event.corrected.empty());
        }
    }
    EXPECT_EQ(accepted, in_events);
    EXPECT_EQ(drafted, all_in_events);
    EXPECT_EQ(stats(stream).tokens_drafted, drafted);
    EXPECT_EQ(stats(stream).tokens_accepted, accepted);
    const size_t n_events = events.size();
    ASSERT_EQ(eliza_inference_set_verifier_callback(context.get(), nullptr, nullptr, nullptr), 0);
    pull(stream, 20);
    EXPECT_EQ(events.size(), n_events);
}

TEST_F(Speculation, SpansNeverDraft) {
    const StreamHandle plain = open_with({}), drafting = open_with({4, f32_model_path()});
    for (const StreamHandle * stream : {&plain, &drafting}) {
        prefill(*stream, tokenize(context, "Say hello. ", true));
    }
    EXPECT_EQ(pull(plain, 5).tokens, [&] {
        std::vector<int32_t> tokens;
        while (tokens.size() < 5) {  // one at a time, because a checked draft returns several
            int32_t token = 0;
            size_t n = 0;
            char text[64];
            EXPECT_GE(eliza_inference_llm_stream_next(drafting.get(), &token, 1, &n, text, sizeof text, nullptr,
                                                      nullptr, nullptr),
                      0);
            tokens.push_back(token);
        }
        return tokens;
    }());
    const int64_t before = stats(drafting).tokens_drafted;
    std::vector<std::string> names;
    for (const StreamHandle * stream : {&plain, &drafting}) {
        set_trie(*stream, payload_of(context, action_names), ELIZA_TRIE_STOP_AT_LEAF);
        pull(*stream);
        names.push_back(leaf(*stream));
    }
    EXPECT_EQ(names[0], names[1]);
    EXPECT_EQ(stats(drafting).tokens_drafted, before);
    eliza_inference_clear_token_trie(plain.get());
    eliza_inference_clear_token_trie(drafting.get());
    std::vector<int32_t> expected = pull(plain, 8).tokens, got = pull(drafting, 8).tokens;
    got.resize(std::min(got.size(), expected.size()));
    EXPECT_EQ(got, expected);
}

TEST_F(Speculation, EndsAtTheSameToken) {
    for (const int max_tokens : {1, 2, 7}) {
        eliza_llm_stream_config_t cfg = full_precision_config();
        cfg.max_tokens = max_tokens;
        std::vector<Output> outputs;
        for (const int draft_max : {0, 5}) {
            cfg.draft_min = draft_max > 0 ? 1 : 0;
            cfg.draft_max = draft_max;
            const std::string drafter = f32_model_path();
            cfg.mtp_drafter_path = drafter.c_str();
            const StreamHandle stream = open(context, cfg);
            prefill(stream, tokenize(context, "Say hello. ", true));
            outputs.push_back(pull(stream));
        }
        EXPECT_EQ(outputs[0].tokens, outputs[1].tokens);
        EXPECT_EQ(outputs[0].text, outputs[1].text);
        EXPECT_EQ(outputs[1].status, 1);
    }
    // The context becomes full.
    context = create({{"n_ctx", "256"}, {"n_slots", "1"}, {"n_threads", "1"}}, f32_model_path());
    std::vector<size_t> lengths;
    for (const int draft_max : {0, 5}) {
        const StreamHandle stream =
            open_with({draft_max, draft_max > 0 ? f32_model_path() : "", "root ::= [0-9]{1500}"});
        prefill(stream, tokenize(context, repeating, true));
        const Output output = pull(stream);
        EXPECT_EQ(output.status, ELIZA_ERR_CONTEXT_FULL);
        lengths.push_back(output.tokens.size());
    }
    EXPECT_EQ(lengths[0], lengths[1]);
}

TEST_F(Speculation, ErrorsNameTheReason) {
    eliza_llm_stream_config_t cfg = config();
    const auto refused = [&](int least, int most, const char * path) {
        cfg.draft_min = least;
        cfg.draft_max = most;
        cfg.mtp_drafter_path = path;
        ErrorText error;
        EXPECT_EQ(eliza_inference_llm_stream_open(context.get(), &cfg, error.out()), nullptr);
        return error.text();
    };
    EXPECT_EQ(refused(-1, 4, nullptr), "draft_min or draft_max is negative");
    EXPECT_EQ(refused(5, 4, nullptr), "draft_min is above draft_max");
    EXPECT_EQ(refused(1, 257, nullptr), "draft_max is above 256");
    EXPECT_NE(refused(1, 4, "/nowhere/model.gguf").find("/nowhere/model.gguf"), std::string::npos);
    // Another vocabulary; the file contains nothing else.
    const std::string other = std::string(ELIZA_TEST_VOCABULARIES) + "/ggml-vocab-qwen2.gguf";
    EXPECT_NE(refused(1, 4, other.c_str()), "");
    cfg.draft_min = cfg.draft_max = 0;
    EXPECT_NE(open(context, cfg), nullptr);
}

}  // namespace
}  // namespace eliza::test
