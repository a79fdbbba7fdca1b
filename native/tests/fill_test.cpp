// Structured answers, span by span.

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "test_session.h"

namespace eliza::test {
namespace {

using Json = nlohmann::json;

class Fill : public testing::Test {
protected:
    ContextHandle context = create({{"n_threads", "1"}});
    std::mt19937 random{12};

    StreamHandle prompted(const std::string & question = "What now?") {
        StreamHandle stream = open(context);
        prefill(stream, chat_prompt(context, question));
        return stream;
    }
    struct Filled {
        int status = 0;
        Json result;
        std::string error;
    };
    static Filled fill(const StreamHandle & stream, const std::string & span) {
        Filled filled;
        ErrorText error;
        char * out = nullptr;
        filled.status = eliza_inference_llm_stream_fill(stream.get(), span.data(), span.size(), &out, error.out());
        filled.error = error.text();
        if (out != nullptr) filled.result = Json::parse(out);
        eliza_inference_free_string(out);
        return filled;
    }
    std::string text_of(const Json & tokens) {
        const std::vector<int> ids = tokens.get<std::vector<int>>();
        std::string text(4096, '\0');
        text.resize(static_cast<size_t>(eliza_inference_detokenize(context.get(), ids.data(), ids.size(), 0, 0,
                                                                   text.data(), text.size(), nullptr)));
        return text;
    }
    // The automaton that accepts n letters.
    static Json letters(int n) {
        Json classes = Json::array(), transitions = Json::array();
        for (int byte = 0; byte < 256; ++byte) classes.push_back(byte >= 'a' && byte <= 'z' ? 0 : 1);
        for (int state = 0; state <= n; ++state) transitions.push_back({state < n ? state + 1 : -1, -1});
        return {{"classes", classes}, {"transitions", transitions}, {"accepting", {n}}};
    }
    static std::string quoted(const std::string & text) { return Json(text).dump(); }
};

TEST_F(Fill, WritesAnAnswerOfFixedTextAndValues) {
    const StreamHandle stream = prompted();
    const Filled action =
        fill(stream, R"({"before":"{\"action\":","choices":["\"REPLY\"","\"SEND_EMAIL\""],"after":",\"text\":"})");
    ASSERT_EQ(action.status, 0) << action.error;
    EXPECT_TRUE(action.result["complete"]);
    const Filled text = fill(stream, R"({"json":"string","after":",\"n\":","max_tokens":20})");
    ASSERT_EQ(text.status, 0) << text.error;
    const Filled number = fill(stream, R"({"json":"number","after":"}","max_tokens":4})");
    ASSERT_EQ(number.status, 0) << number.error;
    const std::string answer = text_of(number.result["answer_tokens"]);
    const Json value = Json::parse(answer);
    EXPECT_EQ(value["action"].dump(), action.result["text"]);
    EXPECT_EQ(value["text"], Json::parse(text.result["text"].get<std::string>()));
    EXPECT_EQ(answer, "{\"action\":" + action.result["text"].get<std::string>() +
                          ",\"text\":" + text.result["text"].get<std::string>() +
                          ",\"n\":" + number.result["text"].get<std::string>() + "}");
    // Generation can continue after it.
    EXPECT_GE(pull(stream, 3).status, 0);
}

TEST_F(Fill, FixedTextIsTokenizedAsAWhole) {
    for (const std::vector<std::string> & choices :
         {std::vector<std::string>{"RESPOND", "IGNORE", "STOP"}, std::vector<std::string>{"yes", "no"}}) {
        const StreamHandle stream = prompted();
        std::string list;
        for (const std::string & choice : choices) list += (list.empty() ? "" : ",") + quoted(choice);
        fill(stream, R"({"before":"{\"a\": \"","choices":[)" + list + R"(],"after":"\", \"b\": \""})");
        fill(stream, R"({"choices":[)" + list + R"(],"after":"\"}"})");
        const Filled last = fill(stream, R"({"before":" done"})");
        const auto tokens = last.result["answer_tokens"].get<std::vector<int32_t>>();
        EXPECT_EQ(tokens, tokenize(context, text_of(tokens)));
    }
}

TEST_F(Fill, FixedTextTakesNoPass) {
    const StreamHandle stream = prompted();
    const int64_t passes = stats(stream).forward_passes;
    fill(stream, R"({"before":"{\"reply\": true, \"text\": \"what a long beginning\""})");
    fill(stream, R"({"before":", \"more\": [1, 2, 3]}"})");
    EXPECT_EQ(stats(stream).forward_passes, passes);
}

TEST_F(Fill, EveryValueHasTheRequestedType) {
    for (int round = 0; round < 25; ++round) {
        const StreamHandle stream = open(context);
        std::vector<int32_t> prompt(8);
        for (int32_t & token : prompt) token = static_cast<int32_t>(20 + random() % 900);
        prefill(stream, prompt);
        const std::string sampling = R"(,"temperature":2.0,"max_tokens":12,"after":"|"})";
        const auto value = [&](const std::string & kind) {
            const Filled filled = fill(stream, R"({"json":")" + kind + "\"" + sampling);
            EXPECT_EQ(filled.status, 0) << filled.error;
            return filled.result["text"].get<std::string>();
        };
        const std::string string = value("string"), number = value("number"), integer = value("integer"),
                          any = value("value"), body = value("string-body");
        EXPECT_TRUE(Json::parse(string).is_string()) << string;
        EXPECT_TRUE(Json::parse("\"" + body + "\"").is_string()) << body;
        EXPECT_EQ(integer.find_first_not_of("-0123456789"), std::string::npos) << integer;
        EXPECT_FALSE(number.empty());
        EXPECT_TRUE(Json::accept(any) || any.find_first_of("eE") != std::string::npos) << any;
    }
}

TEST_F(Fill, AValueEndsWhereTheTextAfterItBegins) {
    // The closing quote may share a token with the text that follows.
    const StreamHandle stream = prompted();
    const Filled filled = fill(stream, R"({"before":"{\"t\":\"","json":"string-body","after":"\"}","max_tokens":8})");
    ASSERT_EQ(filled.status, 0) << filled.error;
    const Json value = Json::parse(text_of(filled.result["answer_tokens"]));
    EXPECT_EQ(Json::parse("\"" + filled.result["text"].get<std::string>() + "\""), value["t"]);
}

TEST_F(Fill, AValueThatIsTooLongIsCompleted) {
    const StreamHandle stream = prompted();
    Json span = {{"before", "["}, {"dfa", letters(40)}, {"after", "]"}, {"max_tokens", 2}};
    const Filled filled = fill(stream, span.dump());
    ASSERT_EQ(filled.status, 0) << filled.error;
    EXPECT_TRUE(filled.result["truncated"]);
    EXPECT_EQ(filled.result["text"].get<std::string>().size(), 40u);
    EXPECT_EQ(text_of(filled.result["answer_tokens"]), "[" + filled.result["text"].get<std::string>() + "]");
}

TEST_F(Fill, ADfaDefinesAValue) {
    Json classes = Json::array();
    for (int byte = 0; byte < 256; ++byte) classes.push_back(byte == 'a' ? 0 : byte == 'b' ? 1 : 2);
    // (ab)+
    const Json span = {
        {"dfa", {{"classes", classes}, {"transitions", {{1, -1, -1}, {-1, 2, -1}, {1, -1, -1}}}, {"accepting", {2}}}},
        {"after", "."},
        {"max_tokens", 5}};
    const StreamHandle stream = prompted();
    const Filled filled = fill(stream, span.dump());
    ASSERT_EQ(filled.status, 0) << filled.error;
    const std::string text = filled.result["text"];
    ASSERT_FALSE(text.empty());
    for (size_t i = 0; i < text.size(); ++i) EXPECT_EQ(text[i], i % 2 == 0 ? 'a' : 'b');
    EXPECT_EQ(text.size() % 2, 0u);
}

TEST_F(Fill, AGrammarDefinesAValue) {
    const StreamHandle stream = prompted();
    const Filled filled = fill(stream, R"({"before":"<","grammar":"root ::= [a-c] [0-9] [0-9]","after":">."})");
    ASSERT_EQ(filled.status, 0) << filled.error;
    const std::string text = filled.result["text"];
    ASSERT_EQ(text.size(), 3u);
    EXPECT_EQ(text_of(filled.result["answer_tokens"]), "<" + text + ">.");
}

TEST_F(Fill, TheTextAfterAGrammarIsFixed) {
    const StreamHandle stream = prompted();
    const std::string after = "\nSecond question: are you sure?";
    const auto filled = [&](const std::string & grammar, int most) {
        Filled result = fill(stream, Json{{"grammar", grammar}, {"after", after}, {"max_tokens", most}}.dump());
        EXPECT_EQ(result.status, 0) << result.error;
        return result.result;
    };
    const Json choice = filled(R"(root ::= "yes" | "no")", 3);
    EXPECT_FALSE(choice.at("truncated"));
    EXPECT_LE(choice.at("tokens"), 3);
    std::string text = choice.at("text").get<std::string>() + after;
    EXPECT_TRUE(text == "yes" + after || text == "no" + after) << text;
    EXPECT_EQ(text_of(choice.at("answer_tokens")), text);
    // This value could go on at the limit.
    const Json letters = filled("root ::= [a-z]+", 2);
    text += letters.at("text").get<std::string>() + after;
    EXPECT_EQ(text_of(letters.at("answer_tokens")), text);
}

// Only single bytes spell the character before the value.
TEST_F(Fill, AStrategyDoesNotChangeTheDraws) {
    std::vector<Json> results;
    std::vector<int64_t> decisions;
    for (const char * strategy : {"auto", "token-by-token"}) {
        context = create({{"n_threads", "1"}, {"seed", "7"}, {"strategy", strategy}});
        const StreamHandle stream = prompted();
        results.push_back(
            fill(stream, R"({"before":"\ud83d\udf1a","grammar":"root ::= [a-z]+","temperature":1,"max_tokens":4})")
                .result);
        decisions.push_back(stats(stream).decisions);
    }
    EXPECT_EQ(results[0].at("answer_tokens"), results[1].at("answer_tokens"));
    EXPECT_EQ(decisions[0], decisions[1]);
}

TEST_F(Fill, ChoicesAgreeWithTheTokenTrie) {
    context = create({{"n_threads", "1"}}, f32_model_path());
    for (int round = 0; round < 30; ++round) {
        std::vector<int32_t> prompt(10);
        for (int32_t & token : prompt) token = static_cast<int32_t>(20 + random() % 900);
        const StreamHandle by_trie = open(context, full_precision_config());
        const StreamHandle by_fill = open(context, full_precision_config());
        prefill(by_trie, prompt);
        prefill(by_fill, prompt);
        set_trie(by_trie, payload_of(context, action_names), ELIZA_TRIE_STOP_AT_LEAF);
        pull(by_trie);
        double logprob = 0.0;
        const std::string name = leaf(by_trie, &logprob);
        const Filled filled = fill(by_fill, Json{{"choices", action_names}}.dump());
        EXPECT_EQ(filled.result["text"], name);
        EXPECT_EQ(action_names[filled.result["choice"].get<size_t>()], name);
        EXPECT_NEAR(filled.result["logprob"].get<double>(), logprob, 1e-2);
    }
}

TEST_F(Fill, BestIsTheMostProbableChoice) {
    context = create({{"n_threads", "1"}}, f32_model_path());
    for (int round = 0; round < 30; ++round) {
        std::vector<int32_t> prompt(10);
        for (int32_t & token : prompt) token = static_cast<int32_t>(20 + random() % 900);
        const StreamHandle by_trie = open(context, full_precision_config());
        const StreamHandle by_fill = open(context, full_precision_config());
        prefill(by_trie, prompt);
        prefill(by_fill, prompt);
        set_trie(by_trie, payload_of(context, action_names), ELIZA_TRIE_BEST_LEAF | ELIZA_TRIE_STOP_AT_LEAF);
        pull(by_trie);
        double logprob = 0.0;
        const std::string name = leaf(by_trie, &logprob);
        const Filled filled = fill(by_fill, Json{{"choices", action_names}, {"best", true}}.dump());
        EXPECT_EQ(filled.result["text"], name);
        EXPECT_NEAR(filled.result["logprob"].get<double>(), logprob, 1e-2);
    }
}

TEST_F(Fill, TakesBackTheEndOfTheLastToken) {
    const StreamHandle stream = prompted(), plain = prompted();
    const Json before = fill(stream, R"({"before":"{\"a\":\"x\","})").result;
    const std::vector<size_t> bytes = before["answer_bytes"];
    const Filled wrong = fill(stream, Json{{"choices", {"}", "]"}}, {"take_back", bytes.back() + 1}}.dump());
    EXPECT_EQ(wrong.status, ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(wrong.error, "take_back: expected at most the " + std::to_string(bytes.back()) +
                               " bytes of the answer's last token, found " + std::to_string(bytes.back() + 1));
    const Filled filled = fill(stream, R"({"choices":["}","]"],"take_back":1})");
    ASSERT_EQ(filled.status, 0) << filled.error;
    const std::string text = filled.result["text"];
    EXPECT_EQ(text_of(filled.result["answer_tokens"]), "{\"a\":\"x\"" + text);
    // The tokens before the last one stay as they are.
    const std::vector<int32_t> old = before["answer_tokens"], now = filled.result["answer_tokens"];
    ASSERT_GE(now.size(), old.size());
    EXPECT_TRUE(std::equal(old.begin(), old.end() - 1, now.begin()));
    EXPECT_EQ(fill(plain, R"({"take_back":1})").status, ELIZA_ERR_INVALID_ARG);  // the answer is empty
}

TEST_F(Fill, LogprobsOfValuesAreOptional) {
    const StreamHandle stream = prompted();
    EXPECT_TRUE(fill(stream, R"({"json":"integer","after":",","max_tokens":3})").result["logprob"].is_null());
    const Json asked = fill(stream, R"({"json":"integer","after":",","max_tokens":3,"logprobs":true})").result;
    EXPECT_LE(asked["logprob"].get<double>(), 0.0);
}

TEST_F(Fill, CanHealThePromptsLastToken) {
    const std::string whole = R"({"action":"SEND_EMAIL"})";
    const StreamHandle stream = open(context);
    prefill(stream, tokenize(context, whole.substr(0, whole.size() - 4)));
    const Filled filled = fill(stream, R"({"choices":["IL","LE"],"after":"\"}","heal":true})");
    ASSERT_EQ(filled.status, 0) << filled.error;
    EXPECT_EQ(filled.result["choice"].get<int>() >= 0, true);
}

TEST_F(Fill, AFullContextReturnsAPartialValue) {
    context = create({{"n_threads", "1"}, {"n_ctx", "64"}, {"n_slots", "1"}});
    const StreamHandle stream = prompted();
    // 6,000 letters, which need more than 256 tokens of this vocabulary.
    const Filled filled = fill(stream, Json{{"dfa", letters(6000)}, {"max_tokens", 0}}.dump());
    EXPECT_EQ(filled.status, ELIZA_ERR_CONTEXT_FULL);
    EXPECT_EQ(filled.error.rfind("context full", 0), 0u) << filled.error;
    EXPECT_FALSE(filled.result["complete"]);
    EXPECT_GT(filled.result["text"].get<std::string>().size(), 0u);
    EXPECT_EQ(eliza_inference_llm_stream_reset(stream.get()), 0);
    prefill(stream, {30, 31});
    EXPECT_EQ(fill(stream, R"({"choices":["a","b"]})").status, 0);
}

TEST_F(Fill, ErrorsNameTheReasonAndChangeNothing) {
    const StreamHandle stream = prompted(), plain = prompted();
    const auto refusal = [&](const std::string & span) {
        const Filled filled = fill(stream, span);
        EXPECT_EQ(filled.status, ELIZA_ERR_INVALID_ARG) << span;
        return filled.error;
    };
    EXPECT_EQ(refusal("{"), "span is not JSON: byte 2 of 1");
    EXPECT_EQ(refusal("[]"), "span: expected an object, found array");
    EXPECT_EQ(refusal(R"({"before":1})"), "before: expected a string, found number");
    EXPECT_EQ(refusal(R"({"choices":[]})"), "choices: expected at least one string, got none");
    EXPECT_EQ(refusal(R"({"choices":["a",""]})"), "choices[1] is empty");
    EXPECT_EQ(refusal(R"({"choices":["a","a"]})"), "choices[1] is the same as choices[0]");
    EXPECT_EQ(refusal(R"({"choices":["a"],"json":"string"})"), "span: expected one value, found choices and json");
    EXPECT_EQ(refusal(R"({"json":"text"})"),
              "json: expected one of string, string-body, number, integer, value, found \"text\"");
    EXPECT_EQ(refusal(R"({"json":"value","depth":65})"), "depth: expected 1 to 64, found 65");
    EXPECT_EQ(refusal(R"({"json":"string","temperature":-1})"), "temperature: expected 0.0 to 1000000.0, found -1");
    EXPECT_EQ(refusal(R"({"dfa":{"classes":[]}})"), "dfa.transitions: missing");
    EXPECT_EQ(refusal(R"({"dfa":{"classes":[18446744073709551615],"transitions":[[-1]],"accepting":[0]}})"),
              "dfa.classes[0]: expected the number of a state or class, found number");
    EXPECT_EQ(refusal(R"({"dfa":)" + std::string(200000, '[') + std::string(200000, ']') + "}"),
              "span is nested deeper than 64 levels, at byte 70");
    EXPECT_EQ(refusal(R"({"json":"string","max_tokens":1e999})").rfind("span contains a number", 0), 0u);
    EXPECT_EQ(refusal(R"({"choices":["a"],"stop":1})").rfind("span: unknown member \"stop\"; known members: after", 0),
              0u);
    EXPECT_NE(refusal(R"({"before":"\u0000","grammar":"root ::= [a]"})").find("U+0000"), std::string::npos);
    EXPECT_NE(refusal(R"({"grammar":"root ::= ("})").find("gbnf_grammar"), std::string::npos);
    EXPECT_EQ(refusal("{\"before\":\"\xff\"}").rfind("span is not JSON", 0), 0u);
    char * out = nullptr;
    EXPECT_EQ(eliza_inference_llm_stream_fill(stream.get(), nullptr, 0, &out, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_fill(stream.get(), "{}", 2, nullptr, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(eliza_inference_llm_stream_fill(nullptr, "{}", 2, &out, nullptr), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(pull(stream, 8).tokens, pull(plain, 8).tokens);
}

TEST_F(Fill, AFailedSpanKeepsTheEarlierText) {
    context = create({{"n_threads", "1"}, {"n_ctx", "64"}, {"n_slots", "2"}});
    const StreamHandle stream = prompted(), plain = prompted();
    const std::string known = R"({"before":"{\"reply\": \"yes"})";
    const Json before = fill(stream, known).result["answer_tokens"];
    fill(plain, known);
    const std::string much(2000, 'x');
    for (const Json & span :
         {Json{{"before", much}}, Json{{"before", much}, {"choices", {"a", "b"}}},
          Json{{"choices", {"a", "b"}}, {"after", much}}, Json{{"before", much}, {"json", "string"}}}) {
        const Filled filled = fill(stream, span.dump());
        EXPECT_EQ(filled.status, ELIZA_ERR_CONTEXT_FULL) << filled.error;
        EXPECT_EQ(filled.error.rfind("context full", 0), 0u) << filled.error;
        EXPECT_EQ(filled.result["answer_tokens"], before);
    }
    const std::string rest = R"({"before":"\",","choices":["\"a\"","\"b\""],"after":"}"})";
    EXPECT_EQ(fill(stream, rest).result["answer_tokens"], fill(plain, rest).result["answer_tokens"]);
    // The part of the value that was written is kept.
    const Filled value = fill(stream, Json{{"json", "integer"}, {"after", much}, {"max_tokens", 2}}.dump());
    EXPECT_EQ(value.status, ELIZA_ERR_CONTEXT_FULL);
    EXPECT_NE(value.result["text"], "");
    EXPECT_GT(value.result["answer_tokens"].size(), before.size());
}

TEST_F(Fill, OnlyTheTokensOfTheValueCount) {
    const StreamHandle stream = prompted();
    const eliza_llm_stream_stats_t before = stats(stream);
    const Json choice =
        fill(
            stream,
            R"({"before":"{\"the name of the action\": \"","choices":["REPLY","NONE"],"after":"\", \"parameters\": {"})")
            .result;
    const eliza_llm_stream_stats_t after = stats(stream);
    EXPECT_GE(choice["tokens"].get<int>(), 1);
    EXPECT_LE(choice["tokens"].get<int>(), 5);
    EXPECT_LE(after.tokens_forced - before.tokens_forced, choice["tokens"].get<int64_t>());
    EXPECT_LE(after.forward_passes_saved - before.forward_passes_saved, choice["tokens"].get<int64_t>());
    const Json value =
        fill(stream, R"({"before":"\"number\": ","dfa":)" + letters(3).dump() + R"(,"max_tokens":1})").result;
    EXPECT_EQ(value["tokens"], 1);
    EXPECT_EQ(value["answer_tokens"].size(), value["answer_bytes"].size());
    size_t n_bytes = 0;
    for (const Json & n : value["answer_bytes"]) n_bytes += n.get<size_t>();
    EXPECT_EQ(n_bytes, text_of(value["answer_tokens"]).size());
}

TEST_F(Fill, LongFixedTextIsTokenizedAsAWhole) {
    context = create({{"n_threads", "1"}, {"n_ctx", "4096"}, {"n_slots", "1"}});
    const StreamHandle stream = prompted();
    Json last;
    for (int i = 0; i < 60; ++i) {
        const std::string known = "\"key number " + std::to_string(i) + "\": \"";
        last = fill(stream, Json{{"before", known}, {"choices", {"YES", "NO", "NOT_NOW"}}, {"after", "\",\n"}}.dump())
                   .result;
        ASSERT_TRUE(last["complete"]);
    }
    const auto tokens = last["answer_tokens"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokens, tokenize(context, text_of(tokens)));
}

TEST_F(Fill, AFixedSeedRepeatsWholeAnswersButNotSpans) {
    const auto run = [&](const StreamHandle & stream) {
        std::vector<std::string> texts;
        for (int i = 0; i < 12; ++i) {
            texts.push_back(
                fill(stream, R"({"before":"x ","json":"integer","after":" ","temperature":5,"max_tokens":4})")
                    .result["text"]);
        }
        return texts;
    };
    // Each in a separate context, because tokens that are already in the cache change the rounding of logits.
    std::vector<std::vector<std::string>> runs;
    for (int i = 0; i < 2; ++i) {
        context = create({{"n_threads", "1"}, {"seed", "7"}});
        runs.push_back(run(prompted()));
    }
    const std::vector<std::string> & texts = runs[0];
    EXPECT_EQ(runs[1], texts);
    EXPECT_GT(std::set<std::string>(texts.begin(), texts.end()).size(), 3u);
}

TEST_F(Fill, LogprobsOfAValueThatEndsFreelyIncludeItsEnd) {
    // Without a text after it, the value ends at any token that cannot continue it. The log-probability of the value
    // includes the probability of ending there. After a value of one letter, that probability is 1, because a second
    // letter is never allowed.
    context = create({{"n_threads", "1"}}, f32_model_path());
    const StreamHandle once = prompted(), twice = prompted();
    const auto logprob = [&](const StreamHandle & stream, int n, const std::string & after) {
        return fill(stream, Json{{"dfa", letters(n)}, {"after", after}, {"logprobs", true}}.dump()).result["logprob"];
    };
    EXPECT_NEAR(logprob(once, 1, "").get<double>(), logprob(twice, 1, ".").get<double>(), 1e-3);
    Json any_number = letters(1);
    any_number["transitions"] = {{1, -1}, {1, -1}};
    const StreamHandle freely = prompted();
    const Json result = fill(freely, Json{{"dfa", any_number}, {"logprobs", true}, {"max_tokens", 30}}.dump()).result;
    EXPECT_LT(result["logprob"].get<double>(), 0.0);
}

TEST_F(Fill, TruncationActsOnTheAllowedTokens) {
    // If top_k 1 acted on the whole vocabulary, the token that it keeps would not be allowed. The value would then be
    // drawn without top_k.
    const StreamHandle greedy = prompted();
    const std::string span = R"({"json":"integer","after":"|","max_tokens":6)";
    const Json best = fill(greedy, span + "}").result;
    for (int round = 0; round < 10; ++round) {
        const StreamHandle stream = prompted();
        EXPECT_EQ(fill(stream, span + R"(,"temperature":3,"top_k":1})").result["text"], best["text"]);
    }
}

TEST_F(Fill, NeedsAPromptAndNoActiveSpan) {
    const StreamHandle empty = open(context);
    EXPECT_EQ(fill(empty, R"({"choices":["a"]})").status, ELIZA_ERR_INVALID_ARG);
    const StreamHandle stream = prompted();
    set_trie(stream, payload_of(context, action_names), 0);
    EXPECT_EQ(fill(stream, R"({"choices":["a"]})").error, "a span of choices is active: clear it before filling");
}

TEST_F(Fill, CancelStopsItAndTheStreamCanResume) {
    const StreamHandle stream = prompted();
    const Json known = fill(stream, R"({"before":"{\"a\":"})").result["answer_tokens"];
    eliza_inference_llm_stream_cancel(stream.get());
    const Filled cancelled = fill(stream, R"({"json":"string"})");
    EXPECT_EQ(cancelled.status, ELIZA_ERR_CANCELLED);
    EXPECT_EQ(cancelled.result["answer_tokens"], known);
    EXPECT_EQ(fill(stream, R"({"json":"string","max_tokens":5,"after":"."})").status, 0);
}

}  // namespace
}  // namespace eliza::test
