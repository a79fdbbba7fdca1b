#include "token_trie/payload.h"

#include <gtest/gtest.h>

#include "error.h"

namespace eliza {
namespace {

std::string error_of(const std::string & json, int32_t n_vocab = 128256) {
    try {
        parse_payload(json, n_vocab);
    } catch (const Error & error) {
        EXPECT_EQ(error.status(), ELIZA_ERR_INVALID_ARG);
        return error.what();
    }
    return "accepted";
}

std::string with_leaves(const std::string & leaves) {
    return R"({"modelId":"m","descriptors":[{"path":"action","leaves":[)" + leaves + "]}]}";
}

TEST(Payload, JoinsTheLeavesOfAllDescriptorsInOrder) {
    const Payload payload = parse_payload(R"({"modelId":"m","descriptors":[
        {"path":"action","leaves":[{"name":"A","tokens":[1,2]}]},
        {"path":"contexts[]","leaves":[{"name":"B","tokens":[3]},{"name":"C","tokens":[4]}]}]})",
                                          10);
    EXPECT_EQ(payload.model_id, "m");
    ASSERT_EQ(payload.leaves.size(), 3u);
    EXPECT_EQ(payload.leaves[0].tokens, (std::vector<Token>{1, 2}));
    EXPECT_EQ(payload.leaves[2].name, "C");
}

TEST(Payload, IgnoresUnknownMembers) {
    EXPECT_EQ(
        error_of(
            R"({"modelId":"m","version":3,"descriptors":[{"path":"x","hint":1,"leaves":[{"name":"A","tokens":[1],"w":2}]}]})"),
        "accepted");
}

TEST(Payload, ChecksTheVocabularyOnlyWhenItsSizeIsKnown) {
    EXPECT_EQ(error_of(with_leaves(R"({"name":"A","tokens":[300000]})"), 0), "accepted");
}

struct BadPayload {
    std::string json;
    std::string error;
};

class BadPayloads : public testing::TestWithParam<BadPayload> {};

TEST_P(BadPayloads, AreRejectedWithTheirPosition) { EXPECT_EQ(error_of(GetParam().json), GetParam().error); }

INSTANTIATE_TEST_SUITE_P(
    Table, BadPayloads,
    testing::Values(
        BadPayload{"", "payload is not JSON: byte 1 of 0"}, BadPayload{"{", "payload is not JSON: byte 2 of 1"},
        BadPayload{"[]", "payload: expected an object, found array"},
        BadPayload{R"({"descriptors":[]})", "modelId: missing"},
        BadPayload{R"({"modelId":1,"descriptors":[]})", "modelId: expected a string, found number"},
        BadPayload{R"({"modelId":"m"})", "descriptors: missing"},
        BadPayload{R"({"modelId":"m","descriptors":[]})", "the payload has no leaves (descriptors: 0)"},
        BadPayload{R"({"modelId":"m","descriptors":[{"leaves":[]}]})", "the payload has no leaves (descriptors: 1)"},
        BadPayload{R"({"modelId":"m","descriptors":[7]})", "descriptors[0]: expected an object, found number"},
        BadPayload{R"({"modelId":"m","descriptors":[{}]})", "descriptors[0].leaves: missing"},
        BadPayload{with_leaves(R"({"tokens":[1]})"), "descriptors[0].leaves[0].name: missing"},
        BadPayload{with_leaves(R"({"name":"A","tokens":[]})"),
                   "descriptors[0].leaves[0].tokens: leaf \"A\" has no tokens"},
        BadPayload{with_leaves(R"({"name":"A","tokens":"1"})"),
                   "descriptors[0].leaves[0].tokens: expected an array, found string"},
        BadPayload{with_leaves(R"({"name":"A","tokens":[1]},{"name":"B","tokens":[1,300000]})"),
                   "descriptors[0].leaves[1].tokens[1]: 300000 is outside the vocabulary of 128256"},
        BadPayload{with_leaves(R"({"name":"A","tokens":[-1]})"),
                   "descriptors[0].leaves[0].tokens[0]: -1 is outside the vocabulary of 128256"},
        BadPayload{with_leaves(R"({"name":"A","tokens":[18446744073709551615]})"),
                   "descriptors[0].leaves[0].tokens[0]: 18446744073709551615 is outside the vocabulary of 128256"},
        BadPayload{with_leaves(R"({"name":"A","tokens":[1.5]})"),
                   "descriptors[0].leaves[0].tokens[0]: expected a token id, found fraction"},
        BadPayload{with_leaves(R"({"name":"A","tokens":[true]})"),
                   "descriptors[0].leaves[0].tokens[0]: expected a token id, found boolean"}));

TEST(Payload, SurvivesDeepNesting) {
    EXPECT_NE(error_of(std::string(1000000, '[')), "accepted");
    const std::string deep = std::string(300000, '[') + std::string(300000, ']');
    EXPECT_EQ(error_of(deep), "payload is nested deeper than 64 levels, at byte 64");
    EXPECT_EQ(error_of(with_leaves(R"({"name":"A","tokens":)" + deep + "}")),
              "payload is nested deeper than 64 levels, at byte 137");
    const std::string brackets_in_text =
        R"({"name":"\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[",)";
    EXPECT_EQ(error_of(with_leaves(brackets_in_text + R"("tokens":[1]})")), "accepted");
}

TEST(Payload, ErrorsDoNotQuoteLongInput) {
    const std::string huge(3000000, 'x');
    EXPECT_LT(error_of(with_leaves(R"({"name":"A","tokens":[")" + huge + "\"]}")).size(), 200u);
}

}  // namespace
}  // namespace eliza
