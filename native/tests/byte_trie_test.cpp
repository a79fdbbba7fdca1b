// The vocabulary's trie, compared with a simple recursive walk over the same tokens.

#include "byte_trie/byte_trie.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <set>

#include "byte_trie/dfa.h"
#include "byte_trie/json_recognizer.h"
#include "byte_trie/masks.h"
#include "byte_trie/text_set.h"
#include "error.h"

namespace eliza {
namespace {

using Texts = std::vector<std::string>;

ByteTrie trie_of(const Texts & texts) { return ByteTrie(std::vector<std::string_view>(texts.begin(), texts.end())); }

// The first version of the walk in toktrie's notes: a tree of maps, with one call for each node.
struct SimpleNode {
    std::vector<Token> tokens;
    std::map<uint8_t, std::unique_ptr<SimpleNode>> children;
};

SimpleNode simple_trie(const Texts & texts) {
    SimpleNode root;
    for (size_t i = 0; i < texts.size(); ++i) {
        SimpleNode * node = &root;
        for (const char byte : texts[i]) {
            auto & child = node->children[static_cast<uint8_t>(byte)];
            if (child == nullptr) child = std::make_unique<SimpleNode>();
            node = child.get();
        }
        if (node != &root) node->tokens.push_back(static_cast<Token>(i));
    }
    return root;
}

template <typename Recognizer>
void traverse(const SimpleNode & node, const Recognizer & recognizer, typename Recognizer::State state,
              std::set<Token> & allowed) {
    allowed.insert(node.tokens.begin(), node.tokens.end());
    for (const auto & [byte, child] : node.children) {
        auto next = state;
        if (recognizer.step(next, byte)) traverse(*child, recognizer, next, allowed);
    }
}

template <typename Recognizer>
std::vector<Token> by_walk(const ByteTrie & trie, const Recognizer & recognizer, typename Recognizer::State state) {
    TokenSet allowed(trie.n_vocab());
    RecognizerStack<Recognizer> stack(recognizer, state, trie.longest_text());
    trie.add_allowed(stack, allowed);
    return allowed.tokens();
}

template <typename Recognizer>
std::vector<Token> by_recursion(const Texts & texts, const Recognizer & recognizer, typename Recognizer::State state) {
    std::set<Token> allowed;
    traverse(simple_trie(texts), recognizer, state, allowed);
    return {allowed.begin(), allowed.end()};
}

// Short strings over few bytes: some are prefixes of others, some are missing, and some occur twice.
Texts random_texts(std::mt19937 & random, const std::string & alphabet, size_t n, size_t longest) {
    Texts texts(n);
    for (std::string & text : texts) {
        for (size_t length = random() % (longest + 1); length > 0; --length)
            text += alphabet[random() % alphabet.size()];
    }
    return texts;
}

TEST(ByteTrie, LaysOutTheTreeOfToktriesNotes) {
    // a -> (x, y -> (a, b), z -> q); ay is not a token. The tree is from toktrie's notes.
    const ByteTrie trie = trie_of({"a", "b", "c", "ax", "aya", "ayb", "az", "azq"});
    struct Expected {
        char byte;
        uint32_t token, size, parents;
    };
    const std::vector<Expected> expected = {
        {'\0', 8, 10, 0}, {'a', 0, 7, 1}, {'x', 3, 1, 1}, {'y', 8, 3, 1}, {'a', 4, 1, 1},
        {'b', 5, 1, 2},   {'z', 6, 2, 2}, {'q', 7, 1, 3}, {'b', 1, 1, 1}, {'c', 2, 1, 1},
    };
    ASSERT_EQ(trie.nodes().size(), expected.size());
    for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_EQ(trie.nodes()[i].byte(), static_cast<uint8_t>(expected[i].byte)) << i;
        EXPECT_EQ(trie.nodes()[i].token(), expected[i].token) << i;
        EXPECT_EQ(trie.nodes()[i].subtree_size(), expected[i].size) << i;
        EXPECT_EQ(trie.nodes()[i].n_parents(), expected[i].parents) << i;
    }
}

TEST(ByteTrie, AgreesWithTheSimpleWalkForTextSets) {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        const Texts vocabulary = random_texts(random, "abc", 1 + random() % 60, 6);
        const ByteTrie trie = trie_of(vocabulary);
        Texts choices = random_texts(random, "abc", 1 + random() % 10, 9);
        for (std::string & choice : choices) choice += 'a';
        const TextSet texts(choices);
        for (TextSet::State state = 0; state < texts.trie().n_nodes(); ++state) {
            ASSERT_EQ(by_walk(trie, texts, state), by_recursion(vocabulary, texts, state)) << "round " << round;
        }
    }
}

TEST(ByteTrie, AgreesWithTheSimpleWalkForRandomAutomata) {
    std::mt19937 random(2);
    int n_tried = 0;
    for (int round = 0; round < 3000; ++round) {
        const size_t n_states = 1 + random() % 8;
        std::vector<int32_t> classes(256);
        for (int32_t & c : classes) c = static_cast<int32_t>(random() % 4);
        std::vector<std::vector<int32_t>> transitions(n_states, std::vector<int32_t>(4));
        for (auto & row : transitions) {
            for (int32_t & next : row) next = static_cast<int32_t>(random() % (n_states + 2)) - 2;
            for (int32_t & next : row) next = std::max(next, -1);
        }
        try {
            const Dfa dfa(classes, transitions, {static_cast<int32_t>(random() % n_states)});
            const Texts vocabulary = random_texts(random, "abcdefgh", 1 + random() % 80, 5);
            const ByteTrie trie = trie_of(vocabulary);
            for (Dfa::State state = 0; state < n_states; ++state) {
                ASSERT_EQ(by_walk(trie, dfa, state), by_recursion(vocabulary, dfa, state)) << "round " << round;
            }
            ++n_tried;
        } catch (const Error &) {
            // a state cannot be reached, or cannot reach an accepting state
        }
    }
    EXPECT_GT(n_tried, 500);
}

TEST(ByteTrie, AgreesWithTheSimpleWalkInsideJson) {
    std::mt19937 random(3);
    const JsonRecognizer json(4);
    for (int round = 0; round < 300; ++round) {
        const Texts vocabulary = random_texts(random, "{}[]\",:0 1t\\u", 300, 4);
        const ByteTrie trie = trie_of(vocabulary);
        // Follow a random document and compare at every position.
        JsonRecognizer::State state = json.start();
        for (int i = 0; i < 40; ++i) {
            ASSERT_EQ(by_walk(trie, json, state), by_recursion(vocabulary, json, state));
            json.step(state, static_cast<uint8_t>("{}[]\",:0 1"[random() % 10]));
        }
    }
}

// A mask is combined from the masks of the value and of the text around it.
TEST(Masks, OfFramedValuesEqualAWalkOverAllTokens) {
    std::mt19937 random(4);
    for (int round = 0; round < 60; ++round) {
        const Texts texts = random_texts(random, "{}[]\",: 1t\\u", 400, 5);
        const auto vocabulary =
            std::make_shared<const Vocabulary>(ByteTrie(std::vector<std::string_view>(texts.begin(), texts.end())));
        const auto strings = std::make_shared<const DfaMasks>(vocabulary, json_string_body_dfa());
        const auto values = json_masks(vocabulary, JsonRecognizer(6, most_json_brackets(vocabulary->all())), strings);
        const Frame frame = {random() % 2 == 0 ? "" : "1,", random() % 2 == 0 ? "" : ",t"};
        const auto framed = framed_masks(vocabulary, values, frame);
        const auto framed_string = framed_masks(vocabulary, strings, {frame.before, "\","});
        auto state = framed->recognizer().start();
        auto in_string = framed_string->recognizer().start();
        for (int i = 0; i < 60; ++i) {
            ASSERT_EQ(framed->mask(state)->tokens.tokens(), by_walk(vocabulary->all(), framed->recognizer(), state));
            ASSERT_EQ(framed_string->mask(in_string)->tokens.tokens(),
                      by_walk(vocabulary->all(), framed_string->recognizer(), in_string));
            const auto byte = static_cast<uint8_t>("{}[]\",:1t\\"[random() % 11]);
            framed->recognizer().step(state, byte);
            framed_string->recognizer().step(in_string, byte);
        }
    }
}

TEST(ByteTrie, AnythingAllowsEveryTokenThatHasAText) {
    const Texts vocabulary = {"", "a", "ab", "b", "ab", ""};
    EXPECT_EQ(by_walk(trie_of(vocabulary), AnythingRecognizer(), {}), (std::vector<Token>{1, 2, 3, 4}));
}

TEST(ByteTrie, LeavesTheStackUnchanged) {
    const ByteTrie trie = trie_of({"abc", "abd", "xyz"});
    const TextSet texts({"abcd", "xyz"});
    RecognizerStack<TextSet> stack(texts, texts.start(), trie.longest_text());
    TokenSet allowed(trie.n_vocab());
    trie.add_allowed(stack, allowed);
    EXPECT_EQ(stack.state(), texts.start());
    EXPECT_EQ(allowed.tokens(), (std::vector<Token>{0, 2}));
}

TEST(ByteTrie, ReturnsTextsAndChildren) {
    const ByteTrie trie = trie_of({"b", "", "ab", "b"});
    EXPECT_EQ(trie.text(2), "ab");
    EXPECT_EQ(trie.text(1), "");
    EXPECT_EQ(trie.longest_text(), 2u);
    const uint32_t a = trie.child(0, 'a');
    ASSERT_NE(a, 0u);
    EXPECT_EQ(trie.nodes()[trie.child(a, 'b')].token(), 2u);
    EXPECT_EQ(trie.child(a, 'c'), 0u);
    EXPECT_EQ(trie.child(0, 'z'), 0u);
    std::vector<Token> twins;
    trie.for_each_twin(0, [&](Token twin) { twins.push_back(twin); });
    EXPECT_EQ(twins, (std::vector<Token>{3}));
}

TEST(ByteTrie, RejectsATextThatIsTooLong) {
    EXPECT_NO_THROW(trie_of({std::string(ByteTrie::max_token_bytes, 'a')}));
    EXPECT_THROW(trie_of({"a", std::string(ByteTrie::max_token_bytes + 1, 'a')}), Error);
    EXPECT_EQ(trie_of({}).nodes().size(), 1u);
}

}  // namespace
}  // namespace eliza
