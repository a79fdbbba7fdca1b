#include "token_trie/rtkt.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <random>
#include <set>

#include "eliza/eliza_token_trie_sampler.h"
#include "error.h"
#include "llama-cpp.h"
#include "token_trie/trie_cache.h"

namespace eliza {
namespace {

void put(std::string & out, uint32_t value) {
    for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(value >> shift & 0xFF);
}

// A slow, obvious encoder: a tree of maps, numbered depth first.
std::string encode(const std::set<std::vector<Token>> & leaves, const std::string & path = "action") {
    struct Tree {
        bool terminal = false;
        std::map<Token, Tree> children;
        uint32_t n_nodes() const {
            uint32_t n = 1;
            for (const auto & [token, child] : children) n += child.n_nodes();
            return n;
        }
    } root;
    for (const auto & leaf : leaves) {
        Tree * at = &root;
        for (const Token token : leaf) at = &at->children[token];
        at->terminal = true;
    }
    std::string out = "RTKT";
    put(out, 1);
    put(out, static_cast<uint32_t>(path.size()));
    out += path;
    put(out, root.n_nodes());
    uint32_t number = 0;
    const std::function<void(Token, const Tree &)> write = [&](Token token, const Tree & tree) {
        put(out, static_cast<uint32_t>(token));
        out += static_cast<char>(tree.terminal ? 1 : 0);
        put(out, static_cast<uint32_t>(tree.children.size()));
        uint32_t place = ++number;
        for (const auto & [child_token, child] : tree.children) {
            put(out, place);
            place += child.n_nodes();
        }
        for (const auto & [child_token, child] : tree.children) write(child_token, child);
    };
    write(-1, root);
    return out;
}

std::string error_of(const std::string & bytes, int32_t n_vocab = 100) {
    try {
        parse_rtkt(bytes, n_vocab);
    } catch (const Error & error) {
        EXPECT_EQ(error.status(), ELIZA_ERR_INVALID_ARG);
        return error.what();
    }
    return "accepted";
}

const std::string small = encode({{5, 7}, {5, 9}, {8}});

TEST(Rtkt, IsReadDepthFirst) {
    const Payload payload = parse_rtkt(small, 100);
    EXPECT_EQ(payload.model_id, "");
    ASSERT_EQ(payload.leaves.size(), 3u);
    EXPECT_EQ(payload.leaves[0].tokens, (std::vector<Token>{5, 7}));
    EXPECT_EQ(payload.leaves[1].tokens, (std::vector<Token>{5, 9}));
    EXPECT_EQ(payload.leaves[2].tokens, (std::vector<Token>{8}));
    EXPECT_EQ(payload.leaves[2].name, "2");
}

TEST(Rtkt, ReadsWhatTheObviousEncoderWrites) {
    std::mt19937 random(2);
    for (int round = 0; round < 300; ++round) {
        std::set<std::vector<Token>> leaves;
        for (uint32_t i = 0, n = 1 + random() % 30; i < n; ++i) {
            std::vector<Token> leaf(1 + random() % 6);
            for (Token & token : leaf) token = static_cast<Token>(random() % 4);
            leaves.insert(leaf);
        }
        std::set<std::vector<Token>> read;
        for (const Leaf & leaf : parse_rtkt(encode(leaves, std::string(random() % 20, 'x')), 0).leaves) {
            EXPECT_TRUE(read.insert(leaf.tokens).second);
        }
        ASSERT_EQ(read, leaves);
    }
}

TEST(Rtkt, EveryTruncationAndAnyTailIsRejected) {
    for (size_t size = 0; size < small.size(); ++size) {
        EXPECT_NE(error_of(small.substr(0, size)), "accepted") << size;
    }
    EXPECT_EQ(error_of(small + "x").find("the RTKT payload is malformed at byte "), 0u);
}

TEST(Rtkt, AChangedByteIsRejectedOrGivesAnotherTree) {
    for (size_t at = 4; at < small.size(); ++at) {
        for (int value = 0; value < 256; ++value) {
            std::string changed = small;
            changed[at] = static_cast<char>(value);
            if (error_of(changed) == "accepted") {
                std::set<std::vector<Token>> leaves;
                for (const Leaf & leaf : parse_rtkt(changed, 100).leaves) leaves.insert(leaf.tokens);
                const std::string path(changed, 12, 6);
                EXPECT_EQ(encode(leaves, path), changed) << "byte " << at << " = " << value;
            }
        }
    }
}

TEST(Rtkt, ErrorsNameTheByteAndTheNode) {
    EXPECT_EQ(error_of(small, 9),
              "the RTKT payload is malformed at byte 69: node 3: token 9 is outside the vocabulary of 9");
    std::string version = small;
    version[4] = 2;
    EXPECT_EQ(error_of(version), "the RTKT payload is malformed at byte 8: expected version 1, got 2");
    std::string many = small;
    many[18] = many[19] = many[20] = many[21] = '\xFF';
    EXPECT_EQ(error_of(many).find("the RTKT payload is malformed at byte 22: 4294967295 nodes do not fit the "), 0u);
}

TEST(Rtkt, ADeepChainIsSupported) {
    const std::vector<Token> chain(100000, 3);
    std::string bytes = "RTKT";
    put(bytes, 1);
    put(bytes, 0);
    put(bytes, static_cast<uint32_t>(chain.size() + 1));
    for (uint32_t node = 0; node <= chain.size(); ++node) {
        put(bytes, node == 0 ? UINT32_MAX : 3);
        bytes += static_cast<char>(node == chain.size() ? 1 : 0);
        put(bytes, node == chain.size() ? 0 : 1);
        if (node < chain.size()) put(bytes, node + 1);
    }
    EXPECT_EQ(parse_rtkt(bytes, 0).leaves.at(0).tokens, chain);
}

TEST(Rtkt, IsDistinguishedFromJsonByItsFirstBytes) {
    TrieCache cache;
    EXPECT_EQ(cache.get(small, 100)->trie.n_leaves(), 3u);
    EXPECT_EQ(cache.get(small, 100), cache.get(small, 100));
    EXPECT_THROW(cache.get("RTKT but not really", 100), Error);
}

TEST(Rtkt, CanCreateASampler) {
    const auto bytes = reinterpret_cast<const uint8_t *>(small.data());
    const llama_sampler_ptr sampler(eliza_llama_sampler_init_token_tree(100, bytes, small.size()));
    ASSERT_NE(sampler, nullptr);
    llama_token_data data[] = {{5, 1.0f, 0.0f}, {6, 9.0f, 0.0f}, {8, 2.0f, 0.0f}};
    llama_token_data_array array{data, 3, -1, false};
    llama_sampler_apply(sampler.get(), &array);
    EXPECT_EQ(array.data[array.selected].id, 8);
    EXPECT_EQ(eliza_llama_sampler_init_token_tree(9, bytes, small.size()), nullptr);
    EXPECT_EQ(eliza_llama_sampler_init_token_tree(100, bytes, small.size() - 1), nullptr);
    EXPECT_EQ(eliza_llama_sampler_init_token_tree(100, nullptr, 8), nullptr);
    EXPECT_EQ(eliza_llama_sampler_init_token_tree(-1, bytes, small.size()), nullptr);
}

}  // namespace
}  // namespace eliza
