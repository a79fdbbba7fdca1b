#include "utf8_assembler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace eliza {
namespace {

const std::string replacement = "\xEF\xBF\xBD";

std::string all_of(const std::vector<std::string> & pieces) {
    Utf8Assembler assembler;
    std::string text;
    for (const std::string & piece : pieces) text += assembler.push(piece);
    return text + assembler.finish();
}

TEST(Utf8Assembler, HoldsBackAnUnfinishedCharacter) {
    Utf8Assembler assembler;
    EXPECT_EQ(assembler.push("a\xF0\x9F"), "a");
    EXPECT_EQ(assembler.push("\x98"), "");
    EXPECT_EQ(assembler.push("\x80z"), "\xF0\x9F\x98\x80z");
    EXPECT_EQ(assembler.finish(), "");
}

TEST(Utf8Assembler, GivesTheSameTextForAnyPieces) {
    const std::string text = "na\xC3\xAFve \xE2\x82\xAC \xF0\x9F\x98\x80!";
    for (size_t cut = 0; cut <= text.size(); ++cut) {
        EXPECT_EQ(all_of({text.substr(0, cut), text.substr(cut)}), text) << "cut at " << cut;
    }
}

struct Invalid {
    std::string bytes;
    std::string text;
};

class InvalidBytes : public testing::TestWithParam<Invalid> {};

TEST_P(InvalidBytes, BecomeReplacementCharacters) { EXPECT_EQ(all_of({GetParam().bytes}), GetParam().text); }

INSTANTIATE_TEST_SUITE_P(Table, InvalidBytes,
                         testing::Values(Invalid{"\x80", replacement}, Invalid{"a\xFFz", "a" + replacement + "z"},
                                         Invalid{"\xC0\xAF", replacement + replacement},                    // overlong
                                         Invalid{"\xE0\x80\x80", replacement + replacement + replacement},  // overlong
                                         Invalid{"\xED\xA0\x80", replacement + replacement + replacement},  // surrogate
                                         Invalid{"\xF4\x90\x80\x80",
                                                 replacement + replacement + replacement + replacement},
                                         Invalid{"\xE2\x82", replacement},         // truncated at the end
                                         Invalid{"\xE2\x82z", replacement + "z"},  // truncated in the middle
                                         Invalid{std::string("a\0b", 3), "a" + replacement + "b"}));

}  // namespace
}  // namespace eliza
