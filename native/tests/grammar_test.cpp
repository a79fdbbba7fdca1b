#include <atomic>
#include <thread>

#include "test_session.h"

namespace eliza::test {
namespace {

class GrammarStream : public testing::Test {
protected:
    // In full precision, so that draws do not depend on how much of a prompt was in a slot.
    ContextHandle context = create({{"n_ctx", "512"}}, f32_model_path());
    std::vector<int32_t> prompt = tokenize(context, "Pick a colour.", true);

    StreamHandle prompted(const char * grammar, float temperature = 0.0f) {
        eliza_llm_stream_config_t cfg = config();
        cfg.gbnf_grammar = grammar;
        cfg.temperature = temperature;
        StreamHandle stream = open(context, cfg);
        prefill(stream, prompt);
        return stream;
    }
    std::string error_of(const std::string & grammar) {
        eliza_llm_stream_config_t cfg = config();
        cfg.gbnf_grammar = grammar.c_str();
        ErrorText error;
        EliLlmStream * stream = eliza_inference_llm_stream_open(context.get(), &cfg, error.out());
        eliza_inference_llm_stream_close(stream);
        return stream != nullptr ? "accepted" : error.text();
    }
    void set_option(const char * key, const char * value) {
        ErrorText error;
        ASSERT_EQ(eliza_inference_set_option(context.get(), key, value, error.out()), 0) << error.text();
    }
};

TEST_F(GrammarStream, TheTextFollowsTheGrammar) {
    for (const float temperature : {0.0f, 1.5f}) {
        const Output output = pull(prompted("root ::= \"red\" | \"green\" | \"blue\"", temperature));
        EXPECT_EQ(output.status, 1);
        EXPECT_TRUE(output.text == "red" || output.text == "green" || output.text == "blue") << output.text;
    }
}

TEST_F(GrammarStream, BothOrdersGiveTheSameGreedyTokens) {
    const char * grammar = "root ::= [a-z]+ \" \" [0-9]+ \".\" [A-Z] [a-z]*";
    set_option("grammar_order", "last");
    const Output last = pull(prompted(grammar), 25);
    set_option("grammar_order", "first");
    const Output first = pull(prompted(grammar), 25);
    EXPECT_FALSE(last.tokens.empty());
    EXPECT_EQ(last.tokens, first.tokens);
}

TEST_F(GrammarStream, ATrieReplacesTheGrammarDuringTheSpan) {
    const StreamHandle stream = prompted("root ::= \"REPLY\" \" to \" [a-z]+ \".\"");
    set_trie(stream, payload_of(context, {"REPLY"}), ELIZA_TRIE_ARGMAX);
    const Output output = pull(stream, 40);
    EXPECT_EQ(output.text.find("REPLY to "), 0u) << output.text;
}

TEST_F(GrammarStream, AContradictingTrieFailsWhenTheGrammarIsNeededAgain) {
    const StreamHandle stream = prompted("root ::= \"yes\"");
    set_trie(stream, payload_of(context, {"IGNORE"}), ELIZA_TRIE_ARGMAX);
    const Output output = pull(stream);
    EXPECT_EQ(output.text, "IGNORE");
    EXPECT_EQ(output.status, ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(output.error, "the grammar cannot continue: it does not allow an earlier token");
    ASSERT_EQ(eliza_inference_llm_stream_reset(stream.get()), 0);
    prefill(stream, prompt);
    EXPECT_EQ(pull(stream).text, "yes");
}

TEST_F(GrammarStream, AGrammarThatIsNestedTooDeepIsRejected) {
    const auto groups = [](size_t depth) {
        return "root ::= " + std::string(depth, '(') + "\"a\"" + std::string(depth, ')');
    };
    EXPECT_EQ(error_of(groups(256)), "accepted");
    EXPECT_EQ(error_of(groups(100000)), "gbnf_grammar: groups are nested deeper than 256");
    EXPECT_EQ(error_of("root ::= \"" + std::string(1000, '(') + "\" [(((] # ((("), "accepted");

    const auto chain = [](int n) {
        std::string grammar = "root ::= r0\n";
        for (int i = 0; i < n; ++i) grammar += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
        return grammar + "r" + std::to_string(n) + " ::= \"a\"\n";
    };
    EXPECT_EQ(error_of(chain(400)), "accepted");
    EXPECT_EQ(error_of(chain(5000)), "accepted");
    EXPECT_EQ(error_of(chain(100000)),
              "gbnf_grammar: 100002 rules, with repetitions written out, exceed the limit of 10000");
}

// llama.cpp's parser would take the closing quote for a part of the character.
TEST_F(GrammarStream, TextThatIsNotUtf8IsRejected) {
    for (const char * bad : {"root ::= \"a\xff\"b\" (\"c\"){6,4}", "root ::= [a\xe9]", "root ::= \"\xc0\x80\"",
                             "# \xed\xa0\x80\nroot ::= \"a\""}) {
        EXPECT_EQ(error_of(bad), "gbnf_grammar: the text is not valid UTF-8, or has a NUL") << bad;
    }
}

TEST_F(GrammarStream, TooLargeRepetitionsAreRejectedUnparsed) {
    EXPECT_EQ(error_of("root ::= \"a\"{2,1}"), "gbnf_grammar: the repetition {2,1} has a maximum below its minimum");
    EXPECT_EQ(error_of("root ::= [a-z]{ 1 , 0 }"),
              "gbnf_grammar: the repetition { 1 , 0 } has a maximum below its minimum");
    EXPECT_EQ(error_of("root ::= \"" + std::string(100000, 'x') + "\"{2000}"),
              "gbnf_grammar: its characters and references, with repetitions written out, exceed the limit of 1000000");
    EXPECT_NE(
        error_of("root ::= a\n" + std::string(500000, 'a') + " ::= (\"x\")* (\"y\")*").find("longer than 256 bytes"),
        std::string::npos);
    // A quote inside a token is not the beginning of a literal.
    EXPECT_EQ(error_of("root ::= <|\"|> \"a\"{2,1}"),
              "gbnf_grammar: the repetition {2,1} has a maximum below its minimum");
    std::string many = "root ::= ";
    for (int i = 0; i < 9000; ++i) many += "\"a\"{0,1999} ";
    EXPECT_EQ(error_of(many), "gbnf_grammar: its rules, with repetitions written out, exceed the limit of 10000");
    EXPECT_NE(error_of("root ::= \"ab\"{1999}{1999}{1999}{1999}"), "accepted");
    for (const char * good :
         {"root ::= \"ab\"{2,3} [a-z]{0,5} (\"x\" | \"y\"){2} .{1,} \"{2,1}\"? # {2,1}",
          "root ::= \"\\\"{2,1}\" [{}]+ a-b*\na-b ::= \"q\"", "root ::= \"a\"{0} \"b\"{0,0} \"c\""}) {
        EXPECT_EQ(error_of(good), "accepted") << good;
    }
}

// Each rule tries the next one twice, so the first character has 2 to the power of n places.
std::string doubling(int n) {
    std::string grammar;
    for (int i = 0; i < n; ++i) {
        const std::string next = "r" + std::to_string(i + 1);
        grammar += (i == 0 ? "root" : "r" + std::to_string(i)) + " ::= " + next + " \"a\" | " + next + " \"b\"\n";
    }
    return grammar + "r" + std::to_string(n) + " ::= \"c\"\n";
}

TEST_F(GrammarStream, LlamaCppsOwnSamplerGivesTheSameTokens) {
    for (const char * grammar :
         {"root ::= [a-z]+ \" \" [0-9]+ \".\" [A-Z] [a-z]*", "root ::= (\"- \" [a-zA-Z ,.é]+ \"\\n\")+",
          "root ::= \"{\" (\"\\\"\" [a-z]+ \"\\\": \" [0-9]+)? \"}\""}) {
        for (const float temperature : {0.0f, 1.2f}) {
            for (const char * order : {"first", "last"}) {
                set_option("grammar_order", order);
                set_option("seed", "7");
                set_option("grammar_engine", "llama.cpp");
                const Output theirs = pull(prompted(grammar, temperature), 20);
                set_option("grammar_engine", "states");
                const Output ours = pull(prompted(grammar, temperature), 20);
                EXPECT_GT(ours.tokens.size(), 1u);
                EXPECT_EQ(ours.tokens, theirs.tokens) << grammar << " at " << temperature;
            }
        }
    }
}

TEST_F(GrammarStream, AnAmbiguousGrammarFailsWithoutBlockingOthers) {
    set_option("grammar_budget", "20000");
    const StreamHandle stream = prompted(doubling(60).c_str());
    const Output output = pull(stream);
    EXPECT_EQ(output.status, ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(output.error.rfind("gbnf_grammar: the next token takes more than 20000 steps", 0), 0u) << output.error;
    EXPECT_EQ(pull(prompted(doubling(6).c_str()), 1).text.substr(0, 1), "c");
}

TEST_F(GrammarStream, WorkOnAGrammarIsCancelledAtOnceWithoutBlockingOthers) {
    set_option("grammar_budget", "2147483647");
    const StreamHandle stream = prompted(doubling(60).c_str());
    std::atomic<bool> over{false};
    std::string error;
    std::thread working([&] {
        error = pull(stream).error;
        over = true;
    });
    const StreamHandle other = open(context);
    prefill(other, prompt);
    set_trie(other, payload_of(context, {"REPLY", "IGNORE"}), ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
    EXPECT_EQ(pull(other).status, 1);
    eliza_inference_llm_stream_cancel(stream.get());
    working.join();
    // Either the cancel came in time, or the limit for the states of one token was reached first.
    EXPECT_TRUE(error == "cancelled" || error.find("MiB") != std::string::npos) << error;
}

TEST_F(GrammarStream, AnEndTokenInsideALeafIsAccepted) {
    const StreamHandle stream = prompted("root ::= \"yes\"");
    const auto model = load_model();
    set_trie(stream, payload({{"end", {llama_vocab_eos(model->vocab())}}}), ELIZA_TRIE_STOP_AT_LEAF);
    const Output output = pull(stream);
    EXPECT_EQ(output.status, 1);
    EXPECT_EQ(leaf(stream), "end");
}

}  // namespace
}  // namespace eliza::test
