// The strings that recognizers accept, and how they complete them.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "byte_trie/dfa.h"
#include "byte_trie/framed.h"
#include "byte_trie/json_recognizer.h"
#include "byte_trie/text_set.h"
#include "error.h"

namespace eliza {
namespace {

template <typename Recognizer>
bool accepts(const Recognizer & recognizer, const std::string & text) {
    auto state = recognizer.start();
    for (const char byte : text) {
        if (!recognizer.step(state, static_cast<uint8_t>(byte))) return false;
    }
    return recognizer.may_end(state);
}

std::string error_of(const std::vector<int32_t> & classes, const std::vector<std::vector<int32_t>> & transitions,
                     const std::vector<int32_t> & accepting) {
    try {
        Dfa(classes, transitions, accepting);
    } catch (const Error & error) {
        return error.what();
    }
    return "";
}

const std::vector<int32_t> one_class(256, 0);

TEST(Recognizers, JsonStringsFollowTheStandard) {
    const Dfa string = json_string_dfa(), body = json_string_body_dfa();
    const std::vector<std::string> good = {
        "",     "abc", "\\n\\\\\\\"\\/", "\\u00e9",         "\\ud83d\\ude00", "\\uD83D\\uDE00", "é",
        "日本", "😀",  "\x7f",           "\xf4\x8f\xbf\xbf"};
    const std::vector<std::string> bad = {
        "\"", "\\",   "\\x",      "\\u12",        "\\ud83d",          "\\ude00", "\\ud83dx",    "\\ud83d\\n",
        "\n", "\xc3", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xff",    "\xe0\x80\x80"};
    for (const std::string & text : good) {
        EXPECT_TRUE(accepts(string, "\"" + text + "\"")) << text;
        EXPECT_TRUE(accepts(body, text)) << text;
    }
    for (const std::string & text : bad) {
        EXPECT_FALSE(accepts(string, "\"" + text + "\"")) << text;
        EXPECT_FALSE(accepts(body, text)) << text;
    }
    EXPECT_FALSE(accepts(string, "\"abc"));
    EXPECT_FALSE(accepts(string, "abc"));
}

TEST(Recognizers, JsonNumbersFollowTheStandard) {
    for (const char * text : {"0", "-0", "7", "10", "-12.5", "0.10", "1e9", "1E+9", "2.5e-10"}) {
        EXPECT_TRUE(accepts(json_number_dfa(), text)) << text;
    }
    for (const char * text : {"", "-", "01", "1.", ".5", "+1", "1e", "1e+", "0x1", "1 ", "--1"}) {
        EXPECT_FALSE(accepts(json_number_dfa(), text)) << text;
    }
    EXPECT_TRUE(accepts(json_integer_dfa(), "-120"));
    EXPECT_FALSE(accepts(json_integer_dfa(), "1.0"));
}

TEST(Recognizers, JsonValuesAgreeWithAParser) {
    const JsonRecognizer json(5);
    for (const char * text : {"{}", "[]", "null", "true", "-1.5", "\"a\"", "[1,2]", "{\"a\":[{}]}",
                              "{\"a\": 1, \"b\" :[ ] }", "[ 1 , 2\n]", "[[[[[]]]]]", "{\"\":\"\"}"}) {
        EXPECT_TRUE(accepts(json, text)) << text;
    }
    for (const char * text : {"", " 1", "1 ", "{", "[1,]", "{\"a\"}", "{a:1}", "{\"a\":1,}", "[1 2]", "{\"a\" 1}", "[}",
                              "{]", "tru", "nulll", "[[[[[[]]]]]]", "1,2", "[1]]", "{,}", "[,1]"}) {
        EXPECT_FALSE(accepts(json, text)) << text;
    }
    EXPECT_FALSE(accepts(json, "[" + std::string(21, ' ') + "]"));
    EXPECT_TRUE(accepts(json, "[" + std::string(20, ' ') + "]"));
    EXPECT_THROW(JsonRecognizer(0), Error);
    EXPECT_THROW(JsonRecognizer(65), Error);
}

// Random walks over allowed bytes, once completed, give text that a parser accepts.
TEST(Recognizers, EveryTextCanBeCompletedFromEveryPosition) {
    std::mt19937 random(5);
    const JsonRecognizer json(6);
    // Only the digit 0, because an exponent with several other digits is too large for the parser, although it is valid
    // JSON.
    const std::string bytes = "{}[]\",: \n0000.eE+-truefalsn\\udac\xc3\xa9xyz";
    for (int round = 0; round < 3000; ++round) {
        auto state = json.start();
        std::string text;
        for (int i = 0; i < 60; ++i) {
            const char byte = bytes[random() % bytes.size()];
            if (json.step(state, static_cast<uint8_t>(byte))) text += byte;
        }
        text += json.shortest_end(state);
        ASSERT_TRUE(nlohmann::json::accept(text)) << text;
        ASSERT_TRUE(accepts(json, text)) << text;
    }
}

// States with the same mask key allow the same continuations, up to the number of brackets that a token can close and
// open.
TEST(Recognizers, JsonStatesWithOneKeyAllowTheSameTokens) {
    std::mt19937 random(6);
    std::vector<std::string> texts;
    for (int i = 0; i < 200; ++i) {
        std::string text;
        for (size_t length = 1 + random() % 3; length > 0; --length) text += "{}[],\":1"[random() % 8];
        texts.push_back(text);
    }
    const ByteTrie trie(std::vector<std::string_view>(texts.begin(), texts.end()));
    const JsonRecognizer json(12, most_json_brackets(trie));
    std::vector<std::pair<MaskKey, std::vector<Token>>> known;
    size_t n_shared = 0;
    for (int round = 0; round < 400; ++round) {
        auto state = json.start();
        for (int i = 0; i < 40; ++i) json.step(state, static_cast<uint8_t>("{[\":,1]}"[random() % 8]));
        TokenSet allowed(trie.n_vocab());
        RecognizerStack<JsonRecognizer> stack(json, state, trie.longest_text());
        trie.add_allowed(stack, allowed);
        for (const auto & [key, tokens] : known) {
            if (key == json.key(state)) {
                ASSERT_EQ(tokens, allowed.tokens());
                ++n_shared;
            }
        }
        known.emplace_back(json.key(state), allowed.tokens());
    }
    EXPECT_GT(n_shared, 100u);
}

TEST(Recognizers, AFrameForcesTheTextsAroundTheValue) {
    const Dfa number = json_number_dfa(), string = json_string_dfa();
    const Framed<Dfa> framed({"say ", ", end"}, number);
    auto state = framed.start();
    EXPECT_FALSE(framed.may_end(state));
    for (const char byte : std::string("say 12")) ASSERT_TRUE(framed.step(state, static_cast<uint8_t>(byte)));
    EXPECT_TRUE(framed.in_value(state));
    EXPECT_TRUE(framed.may_end(state));
    EXPECT_FALSE(framed.is_over(state));
    EXPECT_FALSE(framed.step(state, 'x'));
    ASSERT_TRUE(framed.step(state, ','));
    EXPECT_TRUE(framed.is_over(state));
    EXPECT_EQ(framed.n_after(state), 1u);
    EXPECT_TRUE(framed.step(state, ' '));
    EXPECT_FALSE(framed.step(state, 'x'));
    const Framed<Dfa> quoted({"a", ""}, string);
    EXPECT_EQ(quoted.shortest_end(quoted.start()), "a\"\"");
}

TEST(Recognizers, ATextSetNeedsTexts) {
    EXPECT_THROW(TextSet({}), Error);
    EXPECT_THROW(TextSet({"a", ""}), Error);
}

TEST(Recognizers, AnInvalidTableIsRejectedWithAReason) {
    EXPECT_EQ(error_of(std::vector<int32_t>(3), {{0}}, {0}), "dfa: classes: expected 256 entries, got 3");
    EXPECT_EQ(error_of(one_class, {}, {0}), "dfa: expected 1 to 65535 states, got 0");
    EXPECT_EQ(error_of(std::vector<int32_t>(256, 2), {{0}}, {0}), "dfa: classes[0] is 2, but a row has 1 columns");
    EXPECT_EQ(error_of(one_class, {{0}, {0, 1}}, {0}), "dfa: state 1 has 2 columns, state 0 has 1");
    EXPECT_EQ(error_of(one_class, {{7}}, {0}), "dfa: state 0 leads to 7, outside the 1 states");
    EXPECT_EQ(error_of(one_class, {{0}}, {1}), "dfa: accepting state 1 is outside the 1 states");
    EXPECT_EQ(error_of(one_class, {{0}, {0}}, {0}), "dfa: state 1 is never reached from state 0");
    EXPECT_EQ(error_of(one_class, {{1}, {1}}, {0}), "dfa: state 1 leads to no accepting state");
    EXPECT_EQ(error_of(one_class, {{0}}, {}), "dfa: state 0 leads to no accepting state");
    EXPECT_EQ(error_of(one_class, {{0}}, {0}), "");
}

}  // namespace
}  // namespace eliza
