// Labels that are tokenized once.

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "test_session.h"

namespace eliza::test {
namespace {

using Texts = std::vector<std::string>;
using ChoicesHandle = std::unique_ptr<EliChoices, decltype(&eliza_inference_free_choices)>;

class PreparedChoicesTest : public testing::Test {
protected:
    ContextHandle context = create({{"n_threads", "1"}, {"n_ctx", "1024"}}, f32_model_path());

    ChoicesHandle prepare(const std::string & json) {
        return {eliza_inference_prepare_choices(context.get(), json.data(), json.size(), &longest, error.out()),
                eliza_inference_free_choices};
    }
    ChoicesHandle prepare(const Texts & texts) { return prepare(nlohmann::json(texts).dump()); }

    std::string refusal(const std::string & json) {
        EXPECT_EQ(prepare(json), nullptr);
        return error.text();
    }

    static int set(const StreamHandle & stream, const ChoicesHandle & choices, int mode = ELIZA_TRIE_STOP_AT_LEAF) {
        return eliza_inference_set_choices(stream.get(), choices.get(), mode);
    }

    std::string leaf(const StreamHandle & stream) {
        char name[64] = "";
        EXPECT_EQ(eliza_inference_token_trie_leaf(stream.get(), name, sizeof name, nullptr), 0);
        return name;
    }

    ErrorText error;
    size_t longest = 0;
};

Texts many(size_t n) {
    Texts texts;
    for (size_t i = 0; i < n; ++i) texts.push_back("CHOICE_" + std::to_string(i * 7919 % 100003) + " of many");
    return texts;
}

TEST_F(PreparedChoicesTest, GiveTheSameResultAsAPayloadOfTheirTokens) {
    for (const Texts & texts : {Texts{"REPLY", "IGNORE", "STOP"}, many(700), Texts{"A", "AB", "ABC", " x"}}) {
        std::map<std::string, std::vector<int32_t>> leaves;
        for (const std::string & text : texts) {
            // Tokenized as after a line break.
            std::vector<int32_t> tokens = tokenize(context, "\n" + text);
            tokens.erase(tokens.begin(), tokens.begin() + static_cast<long>(tokenize(context, "\n").size()));
            leaves[text] = tokens;
        }
        const ChoicesHandle choices = prepare(texts);
        ASSERT_NE(choices, nullptr) << error.text();
        size_t expected = 0;
        for (const auto & [name, tokens] : leaves) expected = std::max(expected, tokens.size());
        EXPECT_EQ(longest, expected);
        for (const int mode : {0, 2}) {
            const std::string json = payload(leaves);
            const StreamHandle by_payload = open(context, full_precision_config());
            prefill(by_payload, tokenize(context, "What now? ", true));
            ASSERT_EQ(eliza_inference_set_token_trie(by_payload.get(), json.data(), json.size(), mode | 0x100), 0);
            const StreamHandle prepared = open(context, full_precision_config());
            prefill(prepared, tokenize(context, "What now? ", true));
            ASSERT_EQ(set(prepared, choices, mode | 0x100), 0);
            EXPECT_EQ(pull(prepared).tokens, pull(by_payload).tokens);
            EXPECT_EQ(texts.at(std::stoul(leaf(prepared))), leaf(by_payload));
        }
    }
}

TEST_F(PreparedChoicesTest, MayBeAsLongAsTheContextAllows) {
    // The long labels differ after their 500th token, where a payload's span would have been deactivated.
    std::string common;
    while (tokenize(context, common).size() < 600) common += "many words and ";
    const Texts texts = {common + "yes", common + "no"};
    const ChoicesHandle choices = prepare(texts);
    ASSERT_NE(choices, nullptr) << error.text();
    ASSERT_GT(longest, 500u);
    const StreamHandle stream = open(context, full_precision_config());
    prefill(stream, tokenize(context, "What now? ", true));
    ASSERT_EQ(set(stream, choices), 0);
    const Output output = pull(stream);
    ASSERT_EQ(output.status, 1) << output.error;
    EXPECT_EQ(output.text, texts.at(std::stoul(leaf(stream))));
    EXPECT_EQ(stats(stream).span_limit_hits, 0);
}

TEST_F(PreparedChoicesTest, LongerThanTheContextAreRejectedByIndex) {
    std::string text;
    while (tokenize(context, text).size() <= 1024) text += "many words and ";
    const ChoicesHandle choices = prepare(Texts{"short", text});
    ASSERT_NE(choices, nullptr) << error.text();
    const StreamHandle stream = open(context);
    prefill(stream, tokenize(context, "What now? ", true));
    EXPECT_EQ(set(stream, choices), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(std::string(eliza_inference_last_error(stream.get())),
              "choices[1] has " + std::to_string(longest) + " tokens, the context holds 1024 (option n_ctx)");
}

TEST_F(PreparedChoicesTest, ScoresAreInTheOrderOfTheTexts) {
    const Texts texts = {"STOP", "REPLY", "IGNORE"};
    const ChoicesHandle choices = prepare(texts);
    const StreamHandle stream = open(context);
    prefill(stream, tokenize(context, "What now? ", true));
    ASSERT_EQ(set(stream, choices), 0);
    double scores[3];
    ASSERT_EQ(eliza_inference_token_trie_scores(stream.get(), scores, 3), 3);
    const std::string json = R"(["IGNORE","STOP","REPLY"])";
    const ChoicesHandle turned = prepare(json);
    ASSERT_EQ(set(stream, turned), 0);
    double again[3];
    ASSERT_EQ(eliza_inference_token_trie_scores(stream.get(), again, 3), 3);
    EXPECT_DOUBLE_EQ(scores[0], again[1]);
    EXPECT_DOUBLE_EQ(scores[1], again[2]);
    EXPECT_DOUBLE_EQ(scores[2], again[0]);
}

TEST_F(PreparedChoicesTest, ErrorsNameTheInvalidText) {
    EXPECT_EQ(refusal("[]"), "choices: expected at least one string, got none");
    EXPECT_EQ(refusal(R"(["A",""])"), "choices[1] is empty");
    EXPECT_EQ(refusal(R"(["A","B","A"])"), "choices[2] is the same as choices[0]");
    EXPECT_EQ(refusal(R"(["A",1])"), "choices[1]: expected a string, found number");
    EXPECT_EQ(refusal("{}"), "choices: expected an array of strings, found object");
    EXPECT_NE(refusal("[\"\xff\"]").find("not JSON"), std::string::npos);
    EXPECT_EQ(eliza_inference_prepare_choices(context.get(), nullptr, 0, nullptr, error.out()), nullptr);
    EXPECT_EQ(eliza_inference_prepare_choices(nullptr, "[]", 2, nullptr, error.out()), nullptr);
    EXPECT_EQ(eliza_inference_prepare_choices(context.get(), "[]", 2, nullptr, nullptr), nullptr);
}

TEST_F(PreparedChoicesTest, ATextMayContainNul) {
    const ChoicesHandle choices = prepare(R"(["a\u0000b","c"])");
    ASSERT_NE(choices, nullptr) << error.text();
    const StreamHandle stream = open(context);
    prefill(stream, {5, 6});
    ASSERT_EQ(set(stream, choices), 0);
    EXPECT_FALSE(pull(stream).tokens.empty());
}

TEST_F(PreparedChoicesTest, AreRejectedByAnotherModel) {
    const ContextHandle other = create({{"n_threads", "1"}}, model_path());
    const ChoicesHandle choices = prepare(Texts{"A", "B"});
    const StreamHandle stream = open(other);
    prefill(stream, {5, 6});
    EXPECT_EQ(set(stream, choices), ELIZA_ERR_INVALID_ARG);
    EXPECT_NE(std::string(eliza_inference_last_error(stream.get())).find("another model"), std::string::npos);
    eliza_llm_stream_stats_t stats{};
    ASSERT_EQ(eliza_inference_llm_stream_stats(stream.get(), &stats, sizeof stats), 0);
    EXPECT_EQ(stats.trie_active, 0);
}

TEST_F(PreparedChoicesTest, RemainUsableAfterTheModelIsUnloaded) {
    const ChoicesHandle choices = prepare(Texts{"REPLY", "IGNORE"});
    ASSERT_EQ(eliza_inference_mmap_evict(context.get(), "text", error.out()), 0) << error.text();
    const StreamHandle stream = open(context);
    prefill(stream, {5, 6});
    EXPECT_EQ(set(stream, choices), 0) << eliza_inference_last_error(stream.get());
    const ContextHandle other = create({{"n_threads", "1"}}, f32_model_path());
    const StreamHandle elsewhere = open(other);
    prefill(elsewhere, {5, 6});
    EXPECT_EQ(set(elsewhere, choices), 0) << "the same file";
}

TEST_F(PreparedChoicesTest, MayBeFreedDuringTheirSpan) {
    ChoicesHandle choices = prepare(Texts{"REPLY", "IGNORE"});
    const StreamHandle stream = open(context);
    prefill(stream, {5, 6});
    ASSERT_EQ(set(stream, choices), 0);
    EliChoices * freed = choices.get();
    choices.reset();
    EXPECT_FALSE(pull(stream).tokens.empty());
    EXPECT_EQ(eliza_inference_set_choices(stream.get(), freed, 0), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_set_choices(stream.get(), nullptr, 0), ELIZA_ERR_INVALID_ARG);
    eliza_inference_free_choices(freed);
    eliza_inference_free_choices(nullptr);
}

TEST_F(PreparedChoicesTest, ThreadsCanShareThem) {
    const ChoicesHandle choices = prepare(many(300));
    std::vector<std::string> leaves(4);
    std::vector<std::thread> threads;
    for (std::string & found : leaves) {
        threads.emplace_back([&] {
            const StreamHandle stream = open(context, full_precision_config());
            prefill(stream, tokenize(context, "What now? ", true));
            EXPECT_EQ(set(stream, choices), 0);
            pull(stream);
            found = leaf(stream);
        });
    }
    for (std::thread & thread : threads) thread.join();
    EXPECT_EQ(leaves, std::vector<std::string>(4, leaves[0]));
}

}  // namespace
}  // namespace eliza::test
