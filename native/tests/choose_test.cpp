// The functions that choose in one call.

#include <cmath>
#include <future>
#include <numeric>
#include <string>
#include <vector>

#include "test_session.h"

namespace eliza::test {
namespace {

using ChoicesHandle = std::unique_ptr<EliChoices, decltype(&eliza_inference_free_choices)>;

constexpr const char * prompt = "message: could you look at this?\naction:";

class ChooseTest : public testing::Test {
protected:
    // Labels that share first tokens; one is the beginning of another.
    std::vector<const char *> labels = {"SEND_MAIL", "SEND_MAIL_TO_ALL", "SEND_MESSAGE", "IGNORE", "STOP"};
    ContextHandle context = create({{"n_threads", "1"}, {"n_ctx", "1024"}, {"seed", "7"}}, f32_model_path());
    ErrorText error;

    int choose(const eliza_choose_options_t * options = nullptr, double * probabilities = nullptr) {
        return eliza_inference_choose(context.get(), prompt, labels.data(), labels.size(), options, &choice,
                                      probabilities, error.out());
    }

    eliza_choose_options_t options(eliza_trie_mode mode) {
        eliza_choose_options_t options{};
        options.size = sizeof options;
        options.mode = mode;
        return options;
    }

    ChoicesHandle prepare() {
        return {eliza_inference_prepare_labels(context.get(), labels.data(), labels.size(), error.out()),
                eliza_inference_free_choices};
    }

    std::string refusal(int status) {
        EXPECT_EQ(status, ELIZA_ERR_INVALID_ARG);
        return error.text();
    }

    eliza_choice_t choice{};
};

TEST_F(ChooseTest, GivesTheSameResultAsAStream) {
    for (const eliza_trie_mode mode : {ELIZA_TRIE_ARGMAX, ELIZA_TRIE_BEST_LEAF}) {
        const ContextHandle other = create({{"n_threads", "1"}, {"n_ctx", "1024"}}, f32_model_path());
        const ChoicesHandle prepared{
            eliza_inference_prepare_labels(other.get(), labels.data(), labels.size(), error.out()),
            eliza_inference_free_choices};
        const StreamHandle stream = open(other);
        prefill(stream, tokenize(other, prompt, true, true));
        ASSERT_EQ(eliza_inference_set_choices(stream.get(), prepared.get(), mode | ELIZA_TRIE_STOP_AT_LEAF), 0);
        std::vector<double> expected(labels.size());
        ASSERT_EQ(eliza_inference_token_trie_scores(stream.get(), expected.data(), expected.size()), 5);
        pull(stream);
        char name[8];
        double logprob = 0;
        ASSERT_EQ(eliza_inference_token_trie_leaf(stream.get(), name, sizeof name, &logprob), 0);

        const auto wanted = options(mode);
        std::vector<double> probabilities(labels.size());
        ASSERT_EQ(choose(&wanted, probabilities.data()), 0) << error.text();
        EXPECT_EQ(choice.label, std::stoi(name));
        EXPECT_NEAR(choice.logprob, logprob, 1e-4);
        for (size_t i = 0; i < labels.size(); ++i) EXPECT_NEAR(probabilities[i], std::exp(expected[i]), 1e-4);
        EXPECT_NEAR(std::accumulate(probabilities.begin(), probabilities.end(), 0.0), 1.0, 1e-6);
    }
}

TEST_F(ChooseTest, OneCallOfAStreamGivesTheSameResultAsItsParts) {
    const std::vector<int32_t> tokens = tokenize(context, prompt, true, true);
    const ChoicesHandle prepared = prepare();
    for (const eliza_trie_mode mode : {ELIZA_TRIE_ARGMAX, ELIZA_TRIE_SAMPLE, ELIZA_TRIE_BEST_LEAF}) {
        for (const bool with_scores : {false, true}) {
            const StreamHandle parts = open(context), whole = open(context);
            prefill(parts, tokens);
            ASSERT_EQ(eliza_inference_set_choices(parts.get(), prepared.get(), mode | ELIZA_TRIE_STOP_AT_LEAF), 0);
            std::vector<double> expected(labels.size()), logprobs(labels.size());
            if (with_scores) {
                ASSERT_EQ(eliza_inference_token_trie_scores(parts.get(), expected.data(), expected.size()), 5);
            }
            const std::vector<int32_t> written = pull(parts).tokens;
            char name[8];
            double logprob = 0;
            ASSERT_EQ(eliza_inference_token_trie_leaf(parts.get(), name, sizeof name, &logprob), 0);

            std::vector<int32_t> label_tokens(16);
            eliza_llm_stream_stats_t stats{};
            const int32_t n = eliza_inference_llm_stream_choose(
                whole.get(), tokens.data(), tokens.size(), prepared.get(), mode, &choice, label_tokens.data(),
                label_tokens.size(), with_scores ? logprobs.data() : nullptr, logprobs.size(), &stats, sizeof stats,
                error.out());
            ASSERT_GE(n, 1) << error.text();
            label_tokens.resize(static_cast<size_t>(n));
            EXPECT_EQ(label_tokens, written);
            EXPECT_EQ(choice.label, std::stoi(name));
            EXPECT_NEAR(choice.logprob, logprob, 1e-4);
            EXPECT_EQ(choice.prompt_tokens, static_cast<int32_t>(tokens.size()));
            EXPECT_EQ(stats.generated_tokens, n);
            EXPECT_EQ(stats.finish_reason, ELIZA_FINISH_LEAF);
            for (size_t i = 0; i < labels.size(); ++i) EXPECT_NEAR(logprobs[i], expected[i], 1e-4);
        }
    }
}

TEST_F(ChooseTest, OneCallOfAStreamChecksItsBuffersBeforeItReadsThePrompt) {
    const std::vector<int32_t> tokens = tokenize(context, prompt, true, true);
    const ChoicesHandle prepared = prepare();
    const StreamHandle stream = open(context);
    int32_t label_tokens[16];
    double logprobs[4];
    const auto choose = [&](size_t n_tokens, double * scores, EliChoices * choices, int mode) {
        return eliza_inference_llm_stream_choose(stream.get(), tokens.data(), tokens.size(), choices, mode, &choice,
                                                 label_tokens, n_tokens, scores, 4, nullptr, 0, error.out());
    };
    EXPECT_NE(refusal(choose(0, nullptr, prepared.get(), 0)).find("tokens_cap: expected room for"), std::string::npos);
    EXPECT_EQ(refusal(choose(16, logprobs, prepared.get(), 0)), "logprobs_cap: expected room for 5 labels, got 4");
    EXPECT_EQ(refusal(choose(16, nullptr, nullptr, 0)), "the choices are NULL");
    EXPECT_EQ(refusal(choose(16, nullptr, prepared.get(), 3)), "mode is 3, expected an eliza_trie_mode");
    eliza_llm_stream_stats_t stats{};
    ASSERT_EQ(eliza_inference_llm_stream_stats(stream.get(), &stats, sizeof stats), 0);
    EXPECT_EQ(stats.n_past, 0);
    EXPECT_GE(choose(16, nullptr, prepared.get(), ELIZA_TRIE_BEST_LEAF), 1) << error.text();
}

TEST_F(ChooseTest, CountsThePromptAndItsCachedTokens) {
    ASSERT_EQ(choose(), 0) << error.text();
    const auto n_tokens = static_cast<int32_t>(tokenize(context, prompt, true, true).size());
    EXPECT_EQ(choice.prompt_tokens, n_tokens);
    EXPECT_EQ(choice.prompt_tokens_cached, 0);
    const int32_t first = choice.label;
    ASSERT_EQ(choose(), 0) << error.text();
    EXPECT_EQ(choice.label, first);
    EXPECT_GT(choice.prompt_tokens_cached, n_tokens / 2);
}

TEST_F(ChooseTest, CountsEachChoiceOfAStreamAlone) {
    const ChoicesHandle prepared = prepare();
    const std::vector<int32_t> tokens = tokenize(context, prompt, true, true), more = tokenize(context, "\nand:");
    const StreamHandle stream = open(context);
    std::vector<int32_t> written(64);
    for (const std::vector<int32_t> & part : {tokens, more, more}) {
        const int64_t passes_before = stats(stream).forward_passes, prompts_before = stats(stream).prompt_passes;
        ASSERT_GT(eliza_inference_llm_stream_choose(stream.get(), part.data(), part.size(), prepared.get(),
                                                    ELIZA_TRIE_ARGMAX, &choice, written.data(), written.size(), nullptr,
                                                    0, nullptr, 0, error.out()),
                  0)
            << error.text();
        EXPECT_EQ(choice.prompt_tokens, static_cast<int32_t>(part.size()));
        EXPECT_EQ(choice.prompt_tokens_cached, 0);
        EXPECT_EQ(choice.forward_passes,
                  stats(stream).forward_passes - passes_before - (stats(stream).prompt_passes - prompts_before));
    }
}

TEST_F(ChooseTest, OfAStreamNeedsRoomForTheLongestLabel) {
    const ChoicesHandle prepared = prepare();
    const std::vector<int32_t> tokens = tokenize(context, prompt, true, true);
    eliza_llm_stream_config_t cfg = config();
    cfg.max_tokens = 1;
    const StreamHandle stream = open(context, cfg);
    std::vector<int32_t> written(64);
    const std::string reason = refusal(eliza_inference_llm_stream_choose(
        stream.get(), tokens.data(), tokens.size(), prepared.get(), ELIZA_TRIE_ARGMAX, &choice, written.data(),
        written.size(), nullptr, 0, nullptr, 0, error.out()));
    EXPECT_NE(reason.find("max_tokens of the stream: expected at least "), std::string::npos) << reason;
    EXPECT_NE(reason.find("the tokens of labels[1], got 1"), std::string::npos) << reason;
    EXPECT_EQ(stats(stream).n_past, 0);
}

// A second decoder would have a KV cache of its own.
TEST_F(ChooseTest, UsesTheCacheOfTheStreams) {
    eliza_llm_stream_config_t cfg = config();
    cfg.cache_type_k = cfg.cache_type_v = "q8_0";
    const StreamHandle stream = open(context, cfg);
    const std::vector<int32_t> tokens = tokenize(context, prompt, true, true);
    prefill(stream, tokens);
    ASSERT_EQ(choose(), 0) << error.text();
    EXPECT_EQ(choice.prompt_tokens_cached, choice.prompt_tokens - 1);
}

TEST_F(ChooseTest, EventuallySamplesEveryLabel) {
    const ContextHandle unseeded = create({{"n_threads", "1"}}, f32_model_path());
    auto wanted = options(ELIZA_TRIE_SAMPLE);
    wanted.temperature = 50.0f;
    labels = {"SEND_MAIL", "SEND_MESSAGE", "IGNORE", "STOP"};
    std::vector<int> seen(labels.size());
    for (int i = 0; i < 200; ++i) {
        ASSERT_EQ(eliza_inference_choose(unseeded.get(), prompt, labels.data(), labels.size(), &wanted, &choice,
                                         nullptr, error.out()),
                  0)
            << error.text();
        ++seen.at(static_cast<size_t>(choice.label));
    }
    for (const int n : seen) EXPECT_GT(n, 0);
}

TEST_F(ChooseTest, GivesTheSameWithPreparedLabels) {
    ASSERT_EQ(choose(), 0) << error.text();
    const eliza_choice_t first = choice;
    const ChoicesHandle prepared = prepare();
    ASSERT_NE(prepared, nullptr) << error.text();
    ASSERT_EQ(
        eliza_inference_choose_prepared(context.get(), prompt, prepared.get(), nullptr, &choice, nullptr, error.out()),
        0)
        << error.text();
    EXPECT_EQ(choice.label, first.label);
    EXPECT_NEAR(choice.logprob, first.logprob, 1e-4);
}

// The names of a trie's leaves are any texts: only their places count.
TEST_F(ChooseTest, TheLabelOfATrieIsTheIndexOfItsLeaf) {
    const std::vector<std::vector<int32_t>> tokens = {tokenize(context, "SEND_MAIL", false, false),
                                                      tokenize(context, "IGNORE", false, false),
                                                      tokenize(context, "STOP", false, false)};
    std::vector<int32_t> found;
    for (const std::vector<std::string> & names :
         {std::vector<std::string>{"a", "b", "c"}, {"7up", "7up2", "9 lives"}, {"2", "0", "1"}, {"", "-1", "9e9"}}) {
        std::string leaves;
        for (size_t i = 0; i < names.size(); ++i) {
            leaves += (i > 0 ? "," : "") + std::string(R"({"name":")") + names[i] + R"(","tokens":[)";
            for (size_t j = 0; j < tokens[i].size(); ++j) leaves += (j > 0 ? "," : "") + std::to_string(tokens[i][j]);
            leaves += "]}";
        }
        const std::string json = R"({"modelId":"test","descriptors":[{"path":"x","leaves":[)" + leaves + "]}]}";
        const ChoicesHandle trie(
            eliza_inference_prepare_token_trie(context.get(), json.data(), json.size(), nullptr, error.out()),
            eliza_inference_free_choices);
        ASSERT_NE(trie, nullptr) << error.text();
        std::vector<double> probabilities(3);
        ASSERT_EQ(eliza_inference_choose_prepared(context.get(), prompt, trie.get(), nullptr, &choice,
                                                  probabilities.data(), error.out()),
                  0)
            << error.text();
        found.push_back(choice.label);
        EXPECT_EQ(choice.label, std::max_element(probabilities.begin(), probabilities.end()) - probabilities.begin());
    }
    EXPECT_EQ(found, std::vector<int32_t>(4, found[0]));
}

TEST_F(ChooseTest, TakesOptionsOfACallerWithFewerFields) {
    auto wanted = options(ELIZA_TRIE_BEST_LEAF);
    wanted.temperature = NAN;  // beyond the fields that the caller knows
    wanted.size = offsetof(eliza_choose_options_t, temperature);
    EXPECT_EQ(choose(&wanted), 0) << error.text();
    for (const size_t wrong : {size_t{0}, size_t{3}, sizeof wanted + 1}) {
        wanted.size = static_cast<uint32_t>(wrong);
        EXPECT_EQ(choose(&wanted), ELIZA_ERR_INVALID_ARG);
        EXPECT_NE(error.text().find("the size of the struct, got " + std::to_string(wrong)), std::string::npos)
            << error.text();
    }
}

// Labels with spaces before them that have no tokens in the prompt: the same as these spaces at the end of the prompt.
TEST_F(ChooseTest, MovesSpacesAtTheEndOfThePromptIntoTheLabels) {
    for (const std::string spaces : {" ", "  "}) {
        std::vector<std::string> texts;
        for (const char * label : labels) texts.push_back(spaces + label);
        std::vector<const char *> spaced;
        for (const std::string & text : texts) spaced.push_back(text.c_str());
        std::vector<double> expected(labels.size()), found(labels.size()), prepared(labels.size());
        ASSERT_EQ(eliza_inference_choose(context.get(), prompt, spaced.data(), spaced.size(), nullptr, &choice,
                                         expected.data(), error.out()),
                  0)
            << error.text();
        const eliza_choice_t wanted = choice;
        const std::string longer = prompt + spaces;
        ASSERT_EQ(eliza_inference_choose(context.get(), longer.c_str(), labels.data(), labels.size(), nullptr, &choice,
                                         found.data(), error.out()),
                  0)
            << error.text();
        EXPECT_EQ(choice.label, wanted.label);
        EXPECT_EQ(choice.prompt_tokens, wanted.prompt_tokens);
        ASSERT_EQ(eliza_inference_choose_prepared(context.get(), longer.c_str(), prepare().get(), nullptr, &choice,
                                                  prepared.data(), error.out()),
                  0)
            << error.text();
        for (size_t i = 0; i < labels.size(); ++i) {
            EXPECT_NEAR(found[i], expected[i], 1e-5);
            EXPECT_NEAR(prepared[i], expected[i], 1e-5);
        }
    }
    // A prompt of spaces keeps them.
    ASSERT_EQ(eliza_inference_choose(context.get(), "  ", labels.data(), labels.size(), nullptr, &choice, nullptr,
                                     error.out()),
              0)
        << error.text();
    EXPECT_EQ(choice.prompt_tokens, static_cast<int32_t>(tokenize(context, "  ", true, true).size()));
}

TEST_F(ChooseTest, ReadsControlTokensUnlessThePromptIsPlain) {
    const char * chat = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n";
    auto wanted = options(ELIZA_TRIE_ARGMAX);
    for (const bool is_plain : {false, true}) {
        wanted.plain_prompt = is_plain;
        ASSERT_EQ(eliza_inference_choose(context.get(), chat, labels.data(), labels.size(), &wanted, &choice, nullptr,
                                         error.out()),
                  0)
            << error.text();
        EXPECT_EQ(choice.prompt_tokens, static_cast<int32_t>(tokenize(context, chat, true, !is_plain).size()));
    }
}

TEST_F(ChooseTest, GivesTheSameFromManyThreads) {
    ASSERT_EQ(choose(), 0) << error.text();
    std::vector<std::future<int32_t>> found;
    for (int i = 0; i < 6; ++i) {
        found.push_back(std::async(std::launch::async, [&] {
            eliza_choice_t own{};
            const int status = eliza_inference_choose(context.get(), prompt, labels.data(), labels.size(), nullptr,
                                                      &own, nullptr, nullptr);
            return status == 0 ? own.label : -1;
        }));
    }
    for (auto & each : found) EXPECT_EQ(each.get(), choice.label);
}

TEST_F(ChooseTest, ErrorsNameTheArgument) {
    const auto call = [&](const char * text, const char * const * given, uint64_t n) {
        return refusal(eliza_inference_choose(context.get(), text, given, n, nullptr, &choice, nullptr, error.out()));
    };
    EXPECT_EQ(call(nullptr, labels.data(), 5), "prompt is NULL");
    EXPECT_EQ(call(prompt, nullptr, 5), "there are no labels");
    EXPECT_EQ(call(prompt, labels.data(), 0), "there are no labels");
    labels[2] = nullptr;
    EXPECT_EQ(call(prompt, labels.data(), 5), "labels[2] is NULL");
    labels[2] = "STOP";
    EXPECT_EQ(call(prompt, labels.data(), 5), "choices[4] is the same as choices[2]");
    labels[2] = "";
    EXPECT_NE(call(prompt, labels.data(), 5).find("empty"), std::string::npos);

    labels[2] = "SEND_MESSAGE";
    auto wrong = options(ELIZA_TRIE_ARGMAX);
    wrong.size = 800;
    EXPECT_EQ(refusal(choose(&wrong)),
              "options.size: expected 4 to " + std::to_string(sizeof wrong) + ", the size of the struct, got 800");
    wrong = options(static_cast<eliza_trie_mode>(9));
    EXPECT_EQ(refusal(choose(&wrong)), "options.mode is 9, expected an eliza_trie_mode");
    wrong = options(ELIZA_TRIE_SAMPLE);
    wrong.temperature = std::nanf("");
    EXPECT_EQ(refusal(choose(&wrong)), "options.temperature is not a finite number of 0 or more");
    EXPECT_EQ(refusal(eliza_inference_choose_prepared(context.get(), prompt, nullptr, nullptr, &choice, nullptr,
                                                      error.out())),
              "the choices are NULL");
}

TEST_F(ChooseTest, LeavesTheSlotFreeAfterAFailure) {
    const ContextHandle small =
        create({{"n_threads", "1"}, {"n_ctx", "32"}, {"n_slots", "1"}, {"slot_wait_ms", "0"}}, f32_model_path());
    const std::string longer(4000, 'x');
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(eliza_inference_choose(small.get(), longer.c_str(), labels.data(), labels.size(), nullptr, &choice,
                                         nullptr, error.out()),
                  ELIZA_ERR_CONTEXT_FULL)
            << error.text();
    }
    EXPECT_EQ(eliza_inference_choose(small.get(), "go: ", labels.data(), labels.size(), nullptr, &choice, nullptr,
                                     error.out()),
              0)
        << error.text();
}

}  // namespace
}  // namespace eliza::test
