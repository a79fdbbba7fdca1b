// A structured answer without a stream.

#include "engine/answer/answer.h"

#include <nlohmann/json.hpp>

#include "engine_parts.h"

namespace eliza::test {
namespace {

class AnswerTest : public EngineParts {
protected:
    void SetUp() override {
        read("Which colour is the sky? ");
        answer.begin_after_prompt(/*from_start=*/true);
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

    Choice choice{sequence, options};
    Answer answer{sequence, choice, options};
};

TEST_F(AnswerTest, FixedTextTakesNoPass) {
    fill(R"({"after": "It is "})");
    EXPECT_EQ(sequence.counts().forward_passes, 0);
    EXPECT_EQ(text_of(told().answer), "It is ");
}

TEST_F(AnswerTest, AChoiceIsWrittenBetweenItsFixedTexts) {
    const FillResult result = fill(R"({"before": "It is ", "choices": ["blue", "green"], "after": "."})");
    EXPECT_TRUE(result.complete);
    EXPECT_EQ(result.text, result.choice == 0 ? "blue" : "green");
    EXPECT_EQ(text_of(told().answer), "It is " + result.text + ".");
    EXPECT_FALSE(choice.is_active());
}

TEST_F(AnswerTest, TheSameLabelsAreTokenizedOnce) {
    const auto text_after = [&](const std::string & span) {
        answer.begin_after_prompt(/*from_start=*/true);
        fill(span);
        return text_of(told().answer);
    };
    const std::string span = R"({"before": "It is ", "choices": ["blue", "green"], "after": "."})";
    const std::string first = text_after(span);
    EXPECT_EQ(text_after(span), first);
    EXPECT_EQ(model->label_tries().size(), 1U);
    // The same characters, divided differently.
    EXPECT_EQ(text_after(R"({"before": "It is", "choices": [" blue", " green"], "after": "."})"), first);
    EXPECT_EQ(text_after(R"({"before": "It is ", "choices": ["blue.", "green."]})"), first);
    EXPECT_EQ(text_after(R"({"before": "It is ", "choices": ["blue.5:green."]})"), "It is blue.5:green.");
    EXPECT_EQ(model->label_tries().size(), 4U);
}

TEST_F(AnswerTest, AFailedSpanLeavesTheAnswerUnchanged) {
    fill(R"({"after": "It is "})");
    const std::vector<llama_token> before = sequence.tokens();
    FillResult result;
    EXPECT_THROW(answer.fill(parse_span(R"({"choices": ["a", "a"]})"), {}, result), Error);
    EXPECT_FALSE(result.complete);
    EXPECT_EQ(sequence.tokens(), before);
    EXPECT_EQ(fill(R"({"choices": ["blue"]})").text, "blue");
    EXPECT_EQ(text_of(told().answer), "It is blue");
}

TEST_F(AnswerTest, ItsTokensSpellItsText) {
    fill(R"({"before": "It is ", "json": "string", "max_tokens": 8})");
    const FillResult all = told();
    size_t n_bytes = 0;
    for (const size_t bytes : all.answer_bytes) n_bytes += bytes;
    EXPECT_EQ(n_bytes, text_of(all.answer).size());
}

// Forwards the calls, and counts the walks over all forced text.
class CountingConstraint : public TextConstraint {
public:
    explicit CountingConstraint(std::unique_ptr<TextConstraint> inner) : inner_(std::move(inner)) {}

    bool allows(Token token) const override { return inner_->allows(token); }
    SharedMask mask() override { return inner_->mask(); }
    void accept(Token token) override {
        inner_->accept(token);
        value_ = inner_->value();
    }
    bool may_end() const override { return inner_->may_end(); }
    bool is_over() const override { return inner_->is_over(); }
    bool before_value() const override { return inner_->before_value(); }
    size_t n_after() const override { return inner_->n_after(); }
    ForcedText forced() const override {
        ++n_walks;
        return inner_->forced();
    }
    bool is_narrow() const override { return inner_->is_narrow(); }
    std::string shortest_end() const override { return inner_->shortest_end(); }

    mutable int n_walks = 0;

private:
    std::unique_ptr<TextConstraint> inner_;
};

TEST_F(AnswerTest, ForcedBytesThatAreNotUtf8AreWalkedOnce) {
    const std::string bytes(60, '\xfe');  // never part of UTF-8 text
    // A chain of states with one transition each, by that byte, and then a state with transitions by 'a' and 'b'.
    std::vector<int32_t> classes(256, 0);
    classes[0xfe] = 1;
    classes['a'] = classes['b'] = 2;
    nlohmann::json transitions = nlohmann::json::array();
    for (size_t i = 0; i < bytes.size(); ++i) transitions.push_back({-1, static_cast<int32_t>(i) + 1, -1});
    const auto last = static_cast<int32_t>(bytes.size()) + 1;
    transitions.push_back({-1, -1, last});
    transitions.push_back({-1, -1, -1});
    ValueSpec value;
    value.kind = ValueKind::dfa;
    value.dfa = nlohmann::json{{"classes", classes}, {"transitions", transitions}, {"accepting", {last}}}.dump();
    CountingConstraint constraint(model->text_constraints().value(value, {})->begin());
    SpanSpec spec;
    spec.kind = SpanSpec::Kind::value;
    FillResult result;
    answer.write_value(spec, constraint, selector, result);
    EXPECT_TRUE(result.text == bytes + "a" || result.text == bytes + "b") << result.text.size();
    EXPECT_LE(constraint.n_walks, 4);
}

TEST_F(AnswerTest, ACancelStopsTheTokenizingOfChoices) {
    cancelled.set();
    try {
        // The second choice does not fit the context, which is detected only after tokenizing.
        fill(R"({"choices": ["a", ")" + std::string(1 << 20, 'x') + "\"]}");
        FAIL() << "it was filled";
    } catch (const Error & error) {
        EXPECT_EQ(error.status(), ELIZA_ERR_CANCELLED) << error.what();
    }
}

}  // namespace
}  // namespace eliza::test
