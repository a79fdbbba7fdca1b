// The triggers of a lazy grammar, compared with std::regex. llama.cpp uses it to search the whole text after every
// token.

#include <random>
#include <regex>

#include "error.h"
#include "grammar/triggers.h"
#include "gtest/gtest.h"

namespace eliza::test {
namespace {

std::optional<size_t> begin_by_regex(const std::regex & regex, const std::string & text) {
    std::smatch match;
    if (!std::regex_search(text, match, regex)) return std::nullopt;
    for (size_t group = 1; group < match.size(); ++group) {
        if (match.length(group) > 0) return static_cast<size_t>(match.position(group));
    }
    return static_cast<size_t>(match.position(0));
}

std::string refusal(const std::string & pattern) {
    try {
        TriggerPattern compiled(pattern);
    } catch (const Error & error) {
        return error.what();
    }
    return "accepted";
}

// Feeds pieces until something is found, and compares after each.
void compare(const std::string & pattern, const std::string & text, std::mt19937 & random) {
    const std::regex regex(pattern);
    TriggerSearch search(std::make_shared<const TriggerPattern>(pattern));
    for (size_t begin = 0; begin < text.size();) {
        const size_t length = 1 + random() % 4;
        const std::optional<size_t> expected = begin_by_regex(regex, text.substr(0, begin + length));
        ASSERT_EQ(search.feed(std::string_view(text).substr(begin, length)), expected)
            << pattern << " in " << text.substr(0, begin + length);
        if (expected) return;
        begin += length;
    }
}

TEST(TriggerPatterns, BeginWhereTheStandardLibrarysDo) {
    std::mt19937 random(1);
    const char * const patterns[] = {R"([\s\S]*?(<tool_call>[\s\S]*))",
                                     R"(^(?:[\s\S]*?</think>\s*)?(\{"name":[\s\S]*)$)",
                                     R"((a|ab)(c|bcd)(d*))",
                                     R"(\bcat\b)",
                                     R"(\Bca)",
                                     R"(a{2,3}?(b+)|x$)",
                                     R"([^a-c\s]{3}(\d|\w)?)",
                                     R"(()a*?(b|(c))+$)",
                                     R"(\x41\u0042[[:digit:]]+)",
                                     R"((a*)*b)",
                                     R"(é+(ö|ü))",
                                     R"(.b.)",
                                     R"(|a)"};
    const std::string letters = "aabbccdx c  <{\"1A\nB";
    for (const char * pattern : patterns) {
        for (int round = 0; round < 60; ++round) {
            std::string text;
            for (size_t n = random() % 30; n > 0; --n) text += letters[random() % letters.size()];
            for (const char * more : {"cat ", "<tool_call>x", "</think> {\"name\":", "éü", "AB12", "abcd"}) {
                if (random() % 4 == 0) text.insert(random() % (text.size() + 1), more);
            }
            compare(pattern, text, random);
        }
    }
}

TEST(TriggerPatterns, BeginWhereTheStandardLibrarysDoForRandomPatterns) {
    std::mt19937 random(2);
    const char * const atoms[] = {"a", "b", "c", "[ab]", "[^a]", ".", "\\w", "\\s", "$", "^", "\\b"};
    std::function<std::string(int)> any = [&](int depth) {
        std::string text;
        for (size_t n = 1 + random() % 3; n > 0; --n) {
            const bool group = depth < 3 && random() % 3 == 0;
            const size_t atom = random() % (group ? 8 : 11);
            std::string term = group ? (random() % 2 == 0 ? "(" : "(?:") + any(depth + 1) + ")" : atoms[atom];
            // The standard library behaves differently when it repeats a group that may be empty.
            if (!group && atom < 8) {
                static const char * const counts[] = {"", "", "*", "+?", "?", "{1,2}", "+", "??"};
                term += counts[random() % 8];
            }
            text += term;
        }
        return random() % 4 == 0 ? text + "|" + any(depth + 1) : text;
    };
    for (int round = 0; round < 1500; ++round) {
        const std::string pattern = any(0);
        std::string text;
        for (size_t n = 1 + random() % 12; n > 0; --n) text += "abc "[random() % 4];
        compare(pattern, text, random);
    }
}

TEST(TriggerPatterns, ThatAreUnsupportedAreRejected) {
    EXPECT_EQ(refusal("("), "'(' without ')' (at byte 1 of the pattern)");
    EXPECT_EQ(refusal("a)"), "')' without '(' (at byte 1 of the pattern)");
    EXPECT_EQ(refusal("(a)\\1"), "backreferences are not supported (at byte 5 of the pattern)");
    EXPECT_NE(refusal("(?=a)").find("lookahead"), std::string::npos);
    EXPECT_NE(refusal("a**").find("nothing to repeat"), std::string::npos);
    EXPECT_NE(refusal("+").find("nothing to repeat"), std::string::npos);
    EXPECT_NE(refusal("[a").find("'[' without ']'"), std::string::npos);
    EXPECT_NE(refusal("[z-a]").find("less than the first"), std::string::npos);
    EXPECT_NE(refusal("[é]").find("not ASCII"), std::string::npos);
    EXPECT_NE(refusal("a{3,2}").find("less than its minimum"), std::string::npos);
    EXPECT_NE(refusal("\\").find("nothing follows"), std::string::npos);
    EXPECT_NE(refusal("\\q").find("'\\q' is not a known escape"), std::string::npos);
    EXPECT_NE(refusal(std::string(20000, '(') + "a" + std::string(20000, ')')).find("more than 32 groups"),
              std::string::npos);
    std::string deep(65, ')');
    for (int i = 0; i < 65; ++i) deep = "(?:" + deep;
    EXPECT_NE(refusal(deep).find("nested deeper than 64"), std::string::npos);
    for (const std::string & large :
         {std::string("(?:a{1000}){1000}"), std::string("(?:(?:a{0,999}){0,999}){0,999}"),
          std::string("a{99999999999999999999}"), std::string(20000, 'x'), "a" + std::string(50000, '|')}) {
        EXPECT_NE(refusal(large).find("more than 10000 instructions"), std::string::npos) << large.substr(0, 40);
    }
    EXPECT_EQ(refusal("{\"name\"}"), "accepted");  // not a repetition, so it matches itself
}

// A backtracking search would not finish any of these in reasonable time.
TEST(TriggerPatterns, TakeTimeLinearInTheText) {
    for (const char * pattern : {"(a*)*$b", "(a|a)*b", "([a-zA-Z .,]*)*!{9}#", "(?:a?){30}a{30}b", "(x+x+)+y"}) {
        TriggerSearch search(std::make_shared<const TriggerPattern>(pattern));
        for (int i = 0; i < 200; ++i) EXPECT_EQ(search.feed(std::string(50, "ax"[i % 2])), std::nullopt) << pattern;
    }
}

TEST(WordSearches, FindAWordInAnyPieces) {
    std::mt19937 random(3);
    for (int round = 0; round < 2000; ++round) {
        std::string word, text;
        for (size_t n = random() % 5; n > 0; --n) word += "ab"[random() % 2];
        for (size_t n = random() % 30; n > 0; --n) text += "ab"[random() % 2];
        WordSearch search(word);
        for (size_t begin = 0; begin < text.size();) {
            const size_t length = 1 + random() % 4;
            const size_t expected = text.substr(0, begin + length).find(word);
            const std::optional<size_t> found = search.feed(std::string_view(text).substr(begin, length));
            ASSERT_EQ(found ? *found : std::string::npos, expected) << word << " in " << text;
            if (found) break;
            begin += length;
        }
    }
}

TEST(GrammarTriggers, AreRejectedWithTheirPosition) {
    const auto refused = [](const std::string & json) -> std::string {
        try {
            parse_grammar_triggers(json);
        } catch (const Error & error) {
            return error.what();
        }
        return "accepted";
    };
    EXPECT_EQ(refused(R"([{"type":"word","value":"x"},{"type":"pattern","value":"("}])"),
              "grammar_triggers[1].value: '(' without ')' (at byte 1 of the pattern)");
    std::string many = "[";
    for (int i = 0; i < 20; ++i) many += std::string(i > 0 ? "," : "") + R"({"type":"pattern","value":"a{900}"})";
    EXPECT_EQ(refused(many + "]"),
              "grammar_triggers[11].value: all patterns together have more than 10000 instructions");
}

}  // namespace
}  // namespace eliza::test
