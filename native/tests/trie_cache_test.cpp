#include "token_trie/trie_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "error.h"

namespace eliza {
namespace {

std::string payload_with_token(int token) {
    return R"({"modelId":"m","descriptors":[{"path":"p","leaves":[{"name":"A","tokens":[)" + std::to_string(token) +
           "]}]}]}";
}

TEST(TrieCache, SharesOneTrieBetweenIdenticalPayloads) {
    TrieCache cache;
    EXPECT_EQ(cache.get(payload_with_token(1), 10), cache.get(payload_with_token(1), 10));
    EXPECT_NE(cache.get(payload_with_token(1), 10), cache.get(payload_with_token(2), 10));
    EXPECT_EQ(cache.size(), 2u);
}

TEST(TrieCache, ChecksTokensForEachVocabulary) {
    TrieCache cache;
    cache.get(payload_with_token(9), 10);
    EXPECT_THROW(cache.get(payload_with_token(9), 9), Error);
}

TEST(TrieCache, DroppedEntriesStayAliveForTheirHolders) {
    TrieCache cache(2);
    const auto first = cache.get(payload_with_token(1), 0);
    const auto second = cache.get(payload_with_token(2), 0);
    EXPECT_EQ(cache.get(payload_with_token(1), 0), first);  // now 2 is the oldest
    cache.get(payload_with_token(3), 0);
    EXPECT_EQ(cache.size(), 2u);
    EXPECT_EQ(cache.get(payload_with_token(1), 0), first);
    EXPECT_NE(cache.get(payload_with_token(2), 0), second);
    EXPECT_EQ(second->trie.children(TokenTrie::root)[0], 2);
}

TEST(TrieCache, IsLimitedInBytes) {
    TrieCache cache(128, 10000);
    const std::string large = payload_with_token(1) + std::string(6000, ' ');
    const auto first = cache.get(large, 0);
    EXPECT_GT(cache.size_bytes(), 6000u);
    for (int token = 2; token < 60; ++token) {
        cache.get(payload_with_token(token), 0);
        EXPECT_LE(cache.size_bytes(), 10000u);
    }
    EXPECT_NE(cache.get(large, 0), first);  // it was dropped to make room
    // An entry that is larger than the cache is used, and stays as the only one.
    cache.get(payload_with_token(1) + std::string(20000, ' '), 0);
    EXPECT_EQ(cache.size(), 1u);
}

TEST(TrieCache, DoesNotCacheFailures) {
    TrieCache cache;
    EXPECT_THROW(cache.get("nonsense", 0), Error);
    EXPECT_EQ(cache.size(), 0u);
}

TEST(TrieCache, ServesManyThreadsAtOnce) {
    TrieCache cache(16);
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; ++t) {
        threads.emplace_back([&cache, t] {
            for (int i = 0; i < 500; ++i) {
                const int token = (i * 7 + t) % 40;
                ASSERT_EQ(cache.get(payload_with_token(token), 100)->trie.children(TokenTrie::root)[0], token);
            }
        });
    }
    for (std::thread & thread : threads) thread.join();
    EXPECT_EQ(cache.size(), 16u);
}

}  // namespace
}  // namespace eliza
