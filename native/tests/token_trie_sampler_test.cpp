#include "eliza/eliza_token_trie_sampler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "llama-cpp.h"
#include "test_model.h"

namespace {

constexpr const char * think_and_execute = R"({"modelId":"test","descriptors":[{"path":"action","leaves":[
    {"name":"THINK","tokens":[100,101]},{"name":"EXECUTE","tokens":[200]}]}]})";
constexpr const char * prefixes = R"({"modelId":"test","descriptors":[{"path":"action","leaves":[
    {"name":"short","tokens":[1]},{"name":"long","tokens":[1,2]}]}]})";

// Candidates with ascending logits 1, 2, 3, ... in the order of their ids.
struct Candidates {
    std::vector<llama_token_data> data;
    llama_token_data_array array{};

    explicit Candidates(const std::vector<llama_token> & ids) {
        for (const llama_token id : ids) data.push_back({id, static_cast<float>(data.size() + 1), 0.0f});
        array = {data.data(), data.size(), -1, false};
    }
    bool legal(size_t i) const { return data[i].logit != -INFINITY; }
};

llama_sampler_ptr make(const char * json, int mode = 1, const llama_vocab * vocab = nullptr) {
    return llama_sampler_ptr(llama_sampler_init_token_trie(vocab, json, mode));
}

TEST(TokenTrieSampler, InitializeEmptyDescriptor) {
    EXPECT_EQ(make(R"({ "modelId": "test", "descriptors": [] })"), nullptr);
}

TEST(TokenTrieSampler, MaskInvalidTokens) {
    const auto sampler = make(think_and_execute, 0);
    ASSERT_NE(sampler, nullptr);
    llama_token_data data[] = {{100, 5.0f, 0.0f}, {200, 4.0f, 0.0f}, {999, 6.0f, 0.0f}};
    llama_token_data_array array{data, 3, -1, false};
    llama_sampler_apply(sampler.get(), &array);
    EXPECT_FLOAT_EQ(array.data[0].logit, 5.0f);
    EXPECT_FLOAT_EQ(array.data[1].logit, 4.0f);
    EXPECT_TRUE(std::isinf(array.data[2].logit) && array.data[2].logit < 0.0f);
}

TEST(TokenTrieSampler, TrieWalking) {
    const auto sampler = make(think_and_execute);
    llama_sampler_accept(sampler.get(), 100);
    Candidates at_101({101, 200});
    llama_sampler_apply(sampler.get(), &at_101.array);
    EXPECT_TRUE(at_101.legal(0));
    EXPECT_FALSE(at_101.legal(1));
    llama_sampler_accept(sampler.get(), 101);
    Candidates after({7, 8});
    llama_sampler_apply(sampler.get(), &after.array);
    EXPECT_TRUE(after.legal(0) && after.legal(1));
}

TEST(TokenTrieSampler, HasAName) { EXPECT_STREQ(llama_sampler_name(make(think_and_execute).get()), "token-trie"); }

TEST(TokenTrieSampler, CloneKeepsItsPosition) {
    const auto sampler = make(think_and_execute);
    llama_sampler_accept(sampler.get(), 100);
    const llama_sampler_ptr clone(llama_sampler_clone(sampler.get()));
    llama_sampler_accept(sampler.get(), 101);  // only the original advances
    Candidates candidates({100, 101});
    llama_sampler_apply(clone.get(), &candidates.array);
    EXPECT_FALSE(candidates.legal(0));
    EXPECT_TRUE(candidates.legal(1));
}

TEST(TokenTrieSampler, ResetReturnsToTheRoot) {
    const auto sampler = make(think_and_execute);
    llama_sampler_accept(sampler.get(), 200);
    llama_sampler_reset(sampler.get());
    Candidates candidates({100, 101, 200});
    llama_sampler_apply(sampler.get(), &candidates.array);
    EXPECT_TRUE(candidates.legal(0));
    EXPECT_FALSE(candidates.legal(1));
    EXPECT_TRUE(candidates.legal(2));
}

TEST(TokenTrieSampler, MasksNothingAtALeafThatOthersContinue) {
    const auto sampler = make(prefixes);
    llama_sampler_accept(sampler.get(), 1);
    Candidates candidates({1, 2, 3});
    llama_sampler_apply(sampler.get(), &candidates.array);
    EXPECT_TRUE(candidates.legal(0) && candidates.legal(1) && candidates.legal(2));
    llama_sampler_accept(sampler.get(), 3);  // ended on "short"
    llama_sampler_apply(sampler.get(), &candidates.array);
    EXPECT_TRUE(candidates.legal(0));
}

TEST(TokenTrieSampler, AcceptsDuplicatePaths) {
    const auto sampler = make(R"({"modelId":"t","descriptors":[{"path":"a","leaves":[
        {"name":"A","tokens":[5]},{"name":"B","tokens":[5]}]}]})");
    Candidates candidates({5, 6});
    llama_sampler_apply(sampler.get(), &candidates.array);
    EXPECT_TRUE(candidates.legal(0));
    EXPECT_FALSE(candidates.legal(1));
}

TEST(TokenTrieSampler, ReturnsNullOnBadArguments) {
    EXPECT_EQ(make("not json"), nullptr);
    EXPECT_EQ(make(nullptr), nullptr);
    EXPECT_EQ(make(think_and_execute, 2), nullptr);
    EXPECT_EQ(make(think_and_execute, -1), nullptr);
}

TEST(TokenTrieSampler, ChecksTokensAgainstTheVocabulary) {
    const auto model = eliza::test::load_model();
    const std::string outside = R"({"modelId":"t","descriptors":[{"path":"a","leaves":[{"name":"A","tokens":[)" +
                                std::to_string(model->n_vocab()) + "]}]}]}";
    EXPECT_EQ(make(outside.c_str(), 1, model->vocab()), nullptr);
    EXPECT_NE(make(outside.c_str(), 1, nullptr), nullptr);
}

TEST(TokenTrieSampler, DepartsWhenATokenOutsideTheTrieIsAccepted) {
    const auto sampler = make(think_and_execute);
    llama_sampler_accept(sampler.get(), 7);
    Candidates candidates({7, 8});
    llama_sampler_apply(sampler.get(), &candidates.array);
    EXPECT_TRUE(candidates.legal(0) && candidates.legal(1));
}

TEST(TokenTrieSampler, ModeZeroIsTheArgmaxWhateverFollowsIt) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
        llama_sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
        llama_sampler_chain_add(chain.get(), llama_sampler_init_token_trie(nullptr, think_and_execute, 0));
        llama_sampler_chain_add(chain.get(), llama_sampler_init_dist(seed));
        Candidates candidates({100, 101, 200, 300});  // 300 has the highest logit, 200 the highest allowed one
        llama_sampler_apply(chain.get(), &candidates.array);
        EXPECT_EQ(candidates.array.data[candidates.array.selected].id, 200);
    }
}

TEST(TokenTrieSampler, MasksSortedAndShuffledCandidatesAlike) {
    const auto sampler = make(think_and_execute);
    std::vector<llama_token> ids(300);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<llama_token>(i);
    Candidates sorted(ids);
    std::swap(ids[100], ids[7]);
    Candidates shuffled(ids);
    llama_sampler_apply(sampler.get(), &sorted.array);
    llama_sampler_apply(sampler.get(), &shuffled.array);
    for (size_t i = 0; i < ids.size(); ++i) {
        EXPECT_EQ(sorted.legal(i), i == 100 || i == 200);
        EXPECT_EQ(shuffled.legal(i), i == 7 || i == 200);
    }
    EXPECT_FLOAT_EQ(sorted.data[200].logit, 201.0f);
}

TEST(TokenTrieSampler, ModeOneSamplesAmongTheAllowedTokens) {
    llama_sampler_ptr chain(llama_sampler_chain_init(llama_sampler_chain_default_params()));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_token_trie(nullptr, think_and_execute, 1));
    llama_sampler_chain_add(chain.get(), llama_sampler_init_dist(1));
    int n_100 = 0, n_200 = 0;
    for (int i = 0; i < 2000; ++i) {
        Candidates candidates({100, 300, 200});  // logits 1 and 3: odds 1 to e^2
        llama_sampler_apply(chain.get(), &candidates.array);
        const llama_token token = candidates.array.data[candidates.array.selected].id;
        ASSERT_NE(token, 300);
        ++(token == 100 ? n_100 : n_200);
    }
    EXPECT_NEAR(n_100 / 2000.0, 1.0 / (1.0 + std::exp(2.0)), 0.03);
}

}  // namespace
