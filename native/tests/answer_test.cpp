// A structured answer, without the stream.

#include "engine/answer/answer.h"

#include "engine_parts.h"

namespace eliza::test {
namespace {

class AnswerTest : public EngineParts {
protected:
    void SetUp() override {
        read("Which colour is the sky? ");
        answer.begin_behind_prompt(/*anew=*/true);
    }

    FillResult fill(const std::string & json) {
        FillResult result;
        answer.fill(parse_span(json), {}, result);
        return result;
    }
    std::string text_of(const std::vector<llama_token> & tokens) {
        return model->detokenize(tokens.data(), tokens.size(), false, true);
    }
    FillResult told() {
        FillResult result;
        answer.tell(result);
        return result;
    }

    Choice choice{sequence, options, stats};
    Answer answer{sequence, choice, options, stats};
};

TEST_F(AnswerTest, KnownTextTakesNoPass) {
    fill(R"({"after": "It is "})");
    EXPECT_EQ(sequence.counts().passes, 0);
    EXPECT_EQ(text_of(told().answer), "It is ");
}

TEST_F(AnswerTest, AChoiceStandsBetweenItsKnownTexts) {
    const FillResult result = fill(R"({"before": "It is ", "choices": ["blue", "green"], "after": "."})");
    EXPECT_TRUE(result.complete);
    EXPECT_EQ(result.text, result.choice == 0 ? "blue" : "green");
    EXPECT_EQ(text_of(told().answer), "It is " + result.text + ".");
    EXPECT_FALSE(choice.is_active());
}

TEST_F(AnswerTest, WhatCannotBeFilledLeavesTheAnswerAsItWas) {
    fill(R"({"after": "It is "})");
    const std::vector<llama_token> before = sequence.tokens();
    FillResult result;
    EXPECT_THROW(answer.fill(parse_span(R"({"choices": ["a", "a"]})"), {}, result), Error);
    EXPECT_FALSE(result.complete);
    EXPECT_EQ(sequence.tokens(), before);
    EXPECT_EQ(fill(R"({"choices": ["blue"]})").text, "blue");
    EXPECT_EQ(text_of(told().answer), "It is blue");
}

TEST_F(AnswerTest, BytesOfItsTokensAddUpToItsText) {
    fill(R"({"before": "It is ", "json": "string", "max_tokens": 8})");
    const FillResult all = told();
    size_t n_bytes = 0;
    for (const size_t bytes : all.answer_bytes) n_bytes += bytes;
    EXPECT_EQ(n_bytes, text_of(all.answer).size());
}

}  // namespace
}  // namespace eliza::test
