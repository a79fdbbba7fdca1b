// Labels as text, compared with llama.cpp's grammar of the same strings: the same tokens are allowed at every step, and
// greedy selection gives the same tokens.

#include <algorithm>
#include <cmath>
#include <random>

#include "constraint/text_choices_constraint.h"
#include "error.h"
#include "llama_grammar.h"
#include "test_session.h"

namespace eliza::test {
namespace {

using Texts = std::vector<std::string>;

std::string gbnf_of(const Texts & texts) {
    std::string gbnf = "root ::= ";
    for (size_t i = 0; i < texts.size(); ++i) gbnf += (i > 0 ? " | \"" : "\"") + texts[i] + "\"";
    return gbnf;
}

std::string json_of(const Texts & texts) {
    std::string json = "[";
    for (size_t i = 0; i < texts.size(); ++i) json += (i > 0 ? ",\"" : "\"") + texts[i] + "\"";
    return json + "]";
}

// Built from the parts of action names, so that they share prefixes and contain each other.
Texts random_texts(std::mt19937 & random, size_t most) {
    static const Texts pieces = {"SEND", "_", "EMAIL", "MESSAGE", "GO",     "A",   "é",
                                 "日",   " ", "x",     "1",       "create", "Note"};
    Texts texts;
    for (size_t n = 1 + random() % most; texts.size() < n;) {
        std::string text;
        for (size_t length = 1 + random() % 4; length > 0; --length) text += pieces[random() % pieces.size()];
        if (std::find(texts.begin(), texts.end(), text) == texts.end()) texts.push_back(text);
    }
    return texts;
}

TEST(TextChoices, AllowWhatLlamaCppsGrammarAllows) {
    const auto model = load_model();
    std::mt19937 random(9);
    int n_steps = 0;
    for (int round = 0; round < 300; ++round) {
        const Texts texts = random_texts(random, 8);
        LlamaGrammar grammar(model->vocab(), gbnf_of(texts));
        TextChoicesConstraint constraint(std::make_shared<const TextChoices>(model->vocabulary(), "", texts),
                                         model->end_tokens());
        while (constraint.active()) {
            const std::vector<Token> allowed(constraint.allowed().begin(), constraint.allowed().end());
            ASSERT_EQ(allowed, grammar.allowed()) << json_of(texts);
            ++n_steps;
            const Token token = allowed[random() % allowed.size()];
            if (constraint.is_end_token(token)) {
                constraint.clear();
                break;
            }
            constraint.accept(token);
            grammar.accept(token);
        }
        ASSERT_NE(constraint.leaf_name(), nullptr);
        EXPECT_NE(std::find(texts.begin(), texts.end(), *constraint.leaf_name()), texts.end());
    }
    EXPECT_GT(n_steps, 1000);
}

class TextChoicesInAStream : public testing::Test {
protected:
    ContextHandle context = create({{"n_threads", "1"}}, f32_model_path());
    std::mt19937 random{10};

    std::vector<int32_t> random_prompt() {
        std::vector<int32_t> prompt(5 + random() % 40);
        for (int32_t & token : prompt) token = static_cast<int32_t>(20 + random() % 900);
        return prompt;
    }
    static int set_choices(const StreamHandle & stream, const std::string & json, int mode) {
        return eliza_inference_set_text_choices(stream.get(), json.data(), json.size(), mode);
    }
    static std::string refusal(const StreamHandle & stream, const std::string & json,
                               int mode = ELIZA_TRIE_STOP_AT_LEAF) {
        EXPECT_EQ(set_choices(stream, json, mode), ELIZA_ERR_INVALID_ARG);
        return eliza_inference_last_error(stream.get());
    }
};

TEST_F(TextChoicesInAStream, GiveTheTokensOfLlamaCppsGrammar) {
    for (int round = 0; round < 300; ++round) {
        const Texts texts = random_texts(random, 12);
        const std::vector<int32_t> prompt = random_prompt();
        const std::string gbnf = gbnf_of(texts);
        eliza_llm_stream_config_t cfg = full_precision_config();
        const StreamHandle ours = open(context, cfg);
        cfg.gbnf_grammar = gbnf.c_str();
        const StreamHandle guided = open(context, cfg);
        prefill(guided, prompt);
        prefill(ours, prompt);
        ASSERT_EQ(set_choices(ours, json_of(texts), ELIZA_TRIE_STOP_AT_LEAF), 0);
        const Output chosen = pull(ours);
        EXPECT_EQ(chosen.status, 1);
        EXPECT_EQ(stats(ours).finish_reason, ELIZA_FINISH_LEAF);
        EXPECT_EQ(pull(guided).tokens, chosen.tokens) << gbnf;
        EXPECT_EQ(leaf(ours), chosen.text);
    }
}

TEST_F(TextChoicesInAStream, GiveTheSameTokensWithAndWithoutTheWholeHead) {
    for (int round = 0; round < 40; ++round) {
        const Texts texts = random_texts(random, 12);
        const std::vector<int32_t> prompt = random_prompt();
        std::vector<std::vector<int32_t>> outputs;
        for (const char * strategy : {"token-by-token", "auto"}) {
            ASSERT_EQ(eliza_inference_set_option(context.get(), "strategy", strategy, nullptr), 0);
            const StreamHandle stream = open(context, full_precision_config());
            prefill(stream, prompt);
            ASSERT_EQ(set_choices(stream, json_of(texts), ELIZA_TRIE_STOP_AT_LEAF), 0);
            outputs.push_back(pull(stream).tokens);
        }
        EXPECT_EQ(outputs[0], outputs[1]);
    }
}

TEST_F(TextChoicesInAStream, TheLeafsProbabilityIsTheProductOfItsSteps) {
    const StreamHandle stream = open(context);
    prefill(stream, tokenize(context, "Do it? "));
    ASSERT_EQ(set_choices(stream, R"(["yes"])", ELIZA_TRIE_STOP_AT_LEAF), 0);
    double logprob = 1.0;
    pull(stream);
    EXPECT_EQ(leaf(stream, &logprob), "yes");
    EXPECT_LE(logprob, 0.0);  // one text, but several tokenizations
    EXPECT_TRUE(std::isfinite(logprob));
}

TEST_F(TextChoicesInAStream, WithoutStopTheGenerationContinuesAfterTheLabel) {
    const StreamHandle stream = open(context);
    prefill(stream, chat_prompt(context, "hello"));
    ASSERT_EQ(set_choices(stream, R"(["GO","GO_ON"])", ELIZA_TRIE_ARGMAX), 0);
    const Output output = pull(stream, 12);
    EXPECT_EQ(output.text.rfind("GO", 0), 0u);
    EXPECT_EQ(stats(stream).trie_active, 0);
    EXPECT_NE(leaf(stream), "");
}

// The prompt ends inside the word EMAIL. Healing removes the prompt's last token, so that a longer token can spell its
// text together with the label.
TEST_F(TextChoicesInAStream, HealingReplacesTheLastTokenAndReturnsItsTextOnce) {
    const std::string whole = R"({"action":"SEND_EMAIL")";
    const std::vector<int32_t> tokens = tokenize(context, whole);
    const std::string cut = whole.substr(0, whole.size() - 3);  // inside EMAIL
    const StreamHandle stream = open(context);
    prefill(stream, tokenize(context, cut));
    const int32_t n_before = stats(stream).n_past;
    ASSERT_EQ(set_choices(stream, R"(["IL"])", ELIZA_TRIE_STOP_AT_LEAF | ELIZA_TEXT_HEAL_PROMPT), 0);
    EXPECT_EQ(stats(stream).n_past, n_before - 1);
    const Output output = pull(stream);
    EXPECT_EQ(output.text, "IL");
    EXPECT_EQ(leaf(stream), "IL");
}

TEST_F(TextChoicesInAStream, ClearingBeforeTheFirstTokenRestoresTheHealedOne) {
    const StreamHandle stream = open(context), plain = open(context);
    const std::vector<int32_t> prompt = chat_prompt(context, "hello");
    prefill(stream, prompt);
    prefill(plain, prompt);
    ASSERT_EQ(set_choices(stream, R"(["a"])", ELIZA_TEXT_HEAL_PROMPT), 0);
    eliza_inference_clear_token_trie(stream.get());
    EXPECT_EQ(stats(stream).n_past, static_cast<int32_t>(prompt.size()));
    const Output a = pull(stream, 10), b = pull(plain, 10);
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.text, b.text);
}

TEST_F(TextChoicesInAStream, HealingTwiceKeepsTheSamePrompt) {
    const std::vector<int32_t> prompt = tokenize(context, "The answer is SEND_EM");
    const StreamHandle once = open(context), twice = open(context);
    for (const StreamHandle * stream : {&once, &twice}) prefill(*stream, prompt);
    const std::string choices = json_of({"AIL", "ESSAGE"});
    const int mode = ELIZA_TRIE_STOP_AT_LEAF | ELIZA_TEXT_HEAL_PROMPT;
    const auto set = [&](const StreamHandle & stream, const std::string & json) {
        return eliza_inference_set_text_choices(stream.get(), json.data(), json.size(), mode);
    };
    ASSERT_EQ(set(twice, json_of({"XX", "YY"})), 0);
    ASSERT_EQ(set(twice, choices), 0);
    ASSERT_EQ(set(once, choices), 0);
    const Output expected = pull(once);
    EXPECT_EQ(pull(twice).text, expected.text);
    EXPECT_TRUE(expected.text == "AIL" || expected.text == "ESSAGE") << expected.text;
}

TEST_F(TextChoicesInAStream, APrefillDuringPendingHealingIsRejected) {
    const StreamHandle stream = open(context);
    prefill(stream, tokenize(context, "The answer is SEND_EM"));
    const int32_t n_before = stats(stream).n_past;
    const std::string choices = json_of({"AIL", "ESSAGE"});
    ASSERT_EQ(eliza_inference_set_text_choices(stream.get(), choices.data(), choices.size(), ELIZA_TEXT_HEAL_PROMPT),
              0);
    const int32_t token = 30;
    EXPECT_EQ(eliza_inference_llm_stream_prefill(stream.get(), &token, 1, nullptr), ELIZA_ERR_INVALID_ARG);
    eliza_inference_clear_token_trie(stream.get());
    EXPECT_EQ(stats(stream).n_past, n_before);
    prefill(stream, {token});
    EXPECT_EQ(stats(stream).n_past, n_before + 1);
}

TEST_F(TextChoicesInAStream, HealingIsRejectedUnderAGrammar) {
    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = "root ::= [a-z]+";
    const StreamHandle stream = open(context, cfg);
    prefill(stream, tokenize(context, "The answer is SEND_EM"));
    const std::string choices = json_of({"ail"});
    EXPECT_EQ(eliza_inference_set_text_choices(stream.get(), choices.data(), choices.size(), ELIZA_TEXT_HEAL_PROMPT),
              ELIZA_ERR_INVALID_ARG);
    EXPECT_NE(std::string(eliza_inference_last_error(stream.get())).find("grammar"), std::string::npos);
}

TEST_F(TextChoicesInAStream, ARejectedCallLeavesTheStreamUnchanged) {
    const StreamHandle stream = open(context), plain = open(context);
    const std::vector<int32_t> prompt = chat_prompt(context, "hello");
    prefill(stream, prompt);
    prefill(plain, prompt);
    EXPECT_EQ(refusal(stream, "[]"), "choices: expected at least one string, got none");
    EXPECT_EQ(refusal(stream, R"(["a",""])"), "choices[1] is empty");
    EXPECT_EQ(refusal(stream, R"(["a","b","a"])"), "choices[2] is the same as choices[0]");
    EXPECT_EQ(refusal(stream, R"(["a",1])"), "choices[1]: expected a string, found number");
    EXPECT_EQ(refusal(stream, R"({"a":1})"), "choices: expected an array of strings, found object");
    EXPECT_EQ(refusal(stream, R"(["a)"), "choices is not JSON: byte 4 of 3");
    EXPECT_NE(refusal(stream, "[\"\xc3\"]").find("choices is not JSON"), std::string::npos);
    EXPECT_NE(refusal(stream, R"(["\ud800"])").find("choices is not JSON"), std::string::npos);
    EXPECT_NE(refusal(stream, R"(["a"])", ELIZA_TRIE_BEST_LEAF).find("mode 2"), std::string::npos);
    EXPECT_NE(refusal(stream, R"(["a"])", 7).find("trie mode 7"), std::string::npos);
    EXPECT_EQ(eliza_inference_set_text_choices(stream.get(), nullptr, 3, 0), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_set_text_choices(nullptr, "[]", 2, 0), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(pull(stream, 10).tokens, pull(plain, 10).tokens);
}

TEST_F(TextChoicesInAStream, ATextMayContainNul) {
    const StreamHandle stream = open(context);
    prefill(stream, chat_prompt(context, "hello"));
    const std::string json = R"(["a\u0000b"])";
    ASSERT_EQ(set_choices(stream, json, ELIZA_TRIE_STOP_AT_LEAF), 0);
    EXPECT_EQ(pull(stream).text,
              "a\xef\xbf\xbd"
              "b");
}

TEST_F(TextChoicesInAStream, ScoresAreRejected) {
    const StreamHandle stream = open(context);
    prefill(stream, chat_prompt(context, "hello"));
    ASSERT_EQ(set_choices(stream, R"(["a","b"])", 0), 0);
    double scores[2];
    EXPECT_EQ(eliza_inference_token_trie_scores(stream.get(), scores, 2), ELIZA_ERR_INVALID_ARG);
}

// Sampled tokens follow the softmax of the allowed ones.
TEST_F(TextChoicesInAStream, SamplingFollowsTheProbabilitiesOfTheAllowedTokens) {
    eliza_llm_stream_config_t cfg = config();
    cfg.temperature = 1.0f;
    std::map<std::string, int> counts;
    std::map<std::string, double> logprobs;
    constexpr int n_draws = 600;
    for (int i = 0; i < n_draws; ++i) {
        ASSERT_EQ(eliza_inference_set_option(context.get(), "seed", std::to_string(i).c_str(), nullptr), 0);
        const StreamHandle stream = open(context, cfg);
        prefill(stream, {300, 301, 302});
        ASSERT_EQ(set_choices(stream, R"(["0","1","2","3"])", ELIZA_TRIE_SAMPLE | ELIZA_TRIE_STOP_AT_LEAF), 0);
        pull(stream);
        double logprob = 0.0;
        const std::string name = leaf(stream, &logprob);
        ++counts[name];
        logprobs[name] = logprob;
    }
    for (const auto & [name, logprob] : logprobs) {
        const double expected = n_draws * std::exp(logprob);
        EXPECT_NEAR(counts[name], expected, 5 * std::sqrt(expected) + 1) << name;
    }
}

}  // namespace

// A vocabulary without tokens for all single bytes cannot spell every text.
TEST(TextChoices, ThatTheVocabularyCannotSpellAreRejected) {
    const std::vector<std::string_view> texts = {"ab", "c", "abc", "d"};
    const auto vocabulary = std::make_shared<const Vocabulary>(ByteTrie(texts));
    const TextChoices choices(vocabulary, "", {"abc", "dab"});
    EXPECT_EQ(choices.allowed(TokenTrie::root), (std::vector<Token>{0, 2, 3}));
    // "ab" is the beginning of "abd" and "aba", but only "abd" can be completed.
    const TextChoices finished(vocabulary, "", {"abd"});
    EXPECT_EQ(finished.allowed(TokenTrie::root), (std::vector<Token>{0}));
    try {
        const TextChoices refused(vocabulary, "", {"abd", "aba"});
        FAIL();
    } catch (const Error & error) {
        EXPECT_STREQ(error.what(), "choices[1] \"aba\" cannot be spelled with the tokens of this vocabulary");
    }
}

// After the token "ab", the label "abc" cannot be completed, because the vocabulary has no token "c". Therefore the
// label "ab" ends there.
TEST(TextChoices, ALabelThatNoTokenContinuesIsComplete) {
    const std::vector<std::string_view> texts = {"ab", "abc", "d"};
    const auto vocabulary = std::make_shared<const Vocabulary>(ByteTrie(texts));
    const auto choices =
        std::make_shared<const TextChoices>(vocabulary, "", std::vector<std::string>{"ab", "abc", "dab"});
    for (const std::vector<Token> & end_tokens : {std::vector<Token>{}, std::vector<Token>{2}}) {
        TextChoicesConstraint constraint(choices, end_tokens);
        constraint.accept(0);
        ASSERT_NE(constraint.leaf_name(), nullptr);
        EXPECT_EQ(*constraint.leaf_name(), "ab");
    }
}

}  // namespace eliza::test
