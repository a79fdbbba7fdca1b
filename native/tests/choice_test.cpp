// The choices of a stream, without a stream.

#include "engine/choice/choice.h"

#include "engine_parts.h"

namespace eliza::test {
namespace {

class ChoiceTest : public EngineParts {
protected:
    std::string payload(const std::vector<std::string> & names) {
        std::string json = R"({"modelId":"","descriptors":[{"path":"action","leaves":[)";
        for (const std::string & name : names) {
            json += (name == names.front() ? "" : ",") + std::string(R"({"name":")") + name + R"(","tokens":[)";
            const std::vector<llama_token> tokens = tokens_of(name);
            for (size_t i = 0; i < tokens.size(); ++i) json += (i > 0 ? "," : "") + std::to_string(tokens[i]);
            json += "]}";
        }
        return json + "]}]}";
    }

    void begin(const std::vector<std::string> & names, int mode) {
        choice.begin(choice.parse_token_trie(payload(names), mode));
    }

    std::vector<llama_token> walk() {
        std::vector<llama_token> tokens;
        while (choice.is_active()) {
            const std::optional<llama_token> token = choice.next(selector);
            if (!token) break;
            sequence.append(*token);
            choice.accept(*token);
            tokens.push_back(*token);
        }
        return tokens;
    }

    Choice choice{sequence, options};
};

TEST_F(ChoiceTest, EndsOnTheLeafWhoseTokensItReturned) {
    read("The action is ");
    begin({"REPLY", "SEND_EMAIL", "SEND_MESSAGE"}, ELIZA_TRIE_ARGMAX);
    const std::vector<llama_token> tokens = walk();
    ASSERT_TRUE(choice.leaf().has_value());
    EXPECT_EQ(tokens, tokens_of(choice.leaf()->name));
    EXPECT_LT(choice.leaf()->logprob, 0.0);
    EXPECT_GE(counts.decisions, 1);
}

TEST_F(ChoiceTest, WithOneLeafTakesNoPass) {
    read("The action is ");
    begin({"SEND_MESSAGE"}, ELIZA_TRIE_ARGMAX);
    EXPECT_EQ(walk(), tokens_of("SEND_MESSAGE"));
    EXPECT_EQ(sequence.counts().forward_passes, 0);
    EXPECT_EQ(counts.tokens_forced, static_cast<int64_t>(tokens_of("SEND_MESSAGE").size()));
}

TEST_F(ChoiceTest, DropsScoresIfThePromptContinuesBeforeTheSpan) {
    read("The action is ");
    begin({"REPLY", "STOP"}, ELIZA_TRIE_BEST_LEAF);
    const std::vector<double> before = choice.leaf_scores();
    read("certainly not to reply but to ");
    choice.prompt_changed();
    EXPECT_NE(choice.leaf_scores(), before);
}

TEST_F(ChoiceTest, KeepsItsBestLeafIfThePromptContinuesInsideTheSpan) {
    read("The action is ");
    begin({"CREATE_NOTE", "CREATE_TASK"}, ELIZA_TRIE_BEST_LEAF);
    const std::optional<llama_token> first = choice.next(selector);
    ASSERT_TRUE(first.has_value());
    sequence.append(*first);
    choice.accept(*first);
    read(" (hm) ");
    choice.prompt_changed();
    walk();
    ASSERT_TRUE(choice.leaf().has_value());
    EXPECT_EQ(tokens_of(choice.leaf()->name)[0], *first);
}

TEST_F(ChoiceTest, HasNoScoresWithoutASpan) {
    read("The action is ");
    EXPECT_THROW(choice.leaf_scores(), Error);
}

}  // namespace
}  // namespace eliza::test
