// Every strategy gives the tokens of the slow, obvious strategy, and the scores agree with brute force. The tests use
// full precision, so that a batch and single tokens differ only by the order of sums.

#include <algorithm>
#include <cmath>
#include <random>

#include "test_session.h"

namespace eliza::test {
namespace {

const std::vector<std::string> strategies = {"token-by-token", "skip-ahead", "tree", "auto"};

// Token sequences over a small alphabet, so that they share prefixes, contain each other and repeat.
Leaves random_leaves(std::mt19937 & random, size_t n_leaves, size_t max_length, uint32_t alphabet) {
    Leaves leaves(n_leaves);
    for (auto & leaf : leaves) {
        leaf.resize(1 + random() % max_length);
        for (int32_t & token : leaf) token = static_cast<int32_t>(300 + random() % alphabet);
    }
    return leaves;
}

class Strategies : public testing::Test {
protected:
    ContextHandle context = create({{"n_ctx", "2048"}}, f32_model_path());
    std::mt19937 random{11};

    static eliza_llm_stream_config_t full_precision() {
        eliza_llm_stream_config_t cfg = config();
        cfg.cache_type_k = cfg.cache_type_v = "f32";
        return cfg;
    }

    struct Choice {
        std::vector<int32_t> tokens;
        std::string name;
        double logprob = 0.0;
        eliza_llm_stream_stats_t counts{};
    };

    StreamHandle prompted(const std::string & strategy, const std::vector<int32_t> & prompt) {
        EXPECT_EQ(eliza_inference_set_option(context.get(), "strategy", strategy.c_str(), nullptr), 0);
        StreamHandle stream = open(context, full_precision());
        prefill(stream, prompt);
        return stream;
    }
    Choice choose(const std::string & strategy, const std::vector<int32_t> & prompt, const Leaves & leaves,
                  int mode = ELIZA_TRIE_ARGMAX) {
        const StreamHandle stream = prompted(strategy, prompt);
        set_trie(stream, payload(leaves), mode | ELIZA_TRIE_STOP_AT_LEAF);
        Choice choice;
        const Output output = pull(stream);
        EXPECT_EQ(output.status, 1) << output.error;
        choice.tokens = output.tokens;
        choice.name = leaf(stream, &choice.logprob);
        choice.counts = stats(stream);
        return choice;
    }
    std::vector<double> scores(const std::string & strategy, const std::vector<int32_t> & prompt,
                               const Leaves & leaves) {
        const StreamHandle stream = prompted(strategy, prompt);
        set_trie(stream, payload(leaves), ELIZA_TRIE_ARGMAX);
        std::vector<double> logprobs(leaves.size());
        EXPECT_EQ(eliza_inference_token_trie_scores(stream.get(), logprobs.data(), logprobs.size()),
                  static_cast<int>(leaves.size()))
            << eliza_inference_last_error(stream.get());
        return logprobs;
    }
    std::vector<int32_t> random_prompt() {
        std::vector<int32_t> prompt(5 + random() % 40);
        for (int32_t & token : prompt) token = static_cast<int32_t>(20 + random() % 900);
        return prompt;
    }
    // Returns the smallest margin of all decisions of a walk. The margin of a decision is the difference between the
    // log-probabilities of its two most probable outcomes. If it is near 0, rounding decides.
    static double margin(const Leaves & leaves, const std::vector<double> & logprobs,
                         const std::vector<int32_t> & walk) {
        double least = INFINITY;
        for (size_t depth = 0; depth < walk.size(); ++depth) {
            std::map<int32_t, double> share;  // of the next token; -1 = the leaf ends here
            std::map<std::vector<int32_t>, bool> seen;
            for (size_t i = 0; i < leaves.size(); ++i) {
                const bool below = leaves[i].size() >= depth &&
                                   std::equal(walk.begin(), walk.begin() + static_cast<long>(depth), leaves[i].begin());
                if (below && !seen[leaves[i]]) {
                    seen[leaves[i]] = true;
                    share[leaves[i].size() > depth ? leaves[i][depth] : -1] += std::exp(logprobs[i]);
                }
            }
            std::vector<double> shares;
            for (const auto & [token, p] : share) shares.push_back(std::log(p));
            std::sort(shares.rbegin(), shares.rend());
            if (shares.size() > 1) least = std::min(least, shares[0] - shares[1]);
        }
        return least;
    }
};

// In four parts, which can run in parallel.
class StrategiesOnRandomTries : public Strategies, public testing::WithParamInterface<uint32_t> {};

TEST_P(StrategiesOnRandomTries, GiveTheSameTokens) {
    random.seed(GetParam());
    int n_compared = 0, n_near_ties = 0;
    for (int round = 0; round < 500; ++round) {
        const uint32_t alphabet = 2 + random() % 6;
        const Leaves leaves = random_leaves(random, 1 + random() % 40, 1 + random() % 8, alphabet);
        const std::vector<int32_t> prompt = random_prompt();
        const Choice reference = choose("token-by-token", prompt, leaves);
        if (margin(leaves, scores("token-by-token", prompt, leaves), reference.tokens) < 1e-3) {
            ++n_near_ties;
            continue;
        }
        for (const std::string & strategy : strategies) {
            const Choice choice = choose(strategy, prompt, leaves);
            ASSERT_EQ(choice.tokens, reference.tokens) << strategy << ", round " << round;
            ASSERT_EQ(choice.name, reference.name) << strategy << ", round " << round;
            ASSERT_NEAR(choice.logprob, reference.logprob, 1e-4) << strategy << ", round " << round;
        }
        ++n_compared;
    }
    EXPECT_GT(n_compared, 20 * n_near_ties);
}

INSTANTIATE_TEST_SUITE_P(Seeds, StrategiesOnRandomTries, testing::Values(11, 12, 13, 14));

TEST_F(Strategies, GiveTheSameTokensAfterTheSpan) {
    for (int round = 0; round < 20; ++round) {
        const Leaves leaves = random_leaves(random, 12, 6, 4);
        const std::vector<int32_t> prompt = random_prompt();
        std::vector<std::vector<int32_t>> outputs;
        for (const std::string & strategy : strategies) {
            const StreamHandle stream = prompted(strategy, prompt);
            set_trie(stream, payload(leaves), ELIZA_TRIE_ARGMAX);
            outputs.push_back(pull(stream, 14).tokens);
            // And after the next part of a conversation, which is decoded together with the queued tokens.
            prefill(stream, {40, 41, 42});
            const Output more = pull(stream, 4);
            outputs.back().insert(outputs.back().end(), more.tokens.begin(), more.tokens.end());
        }
        for (const auto & output : outputs) ASSERT_EQ(output, outputs[0]) << "round " << round;
    }
}

TEST_F(Strategies, HandleEveryShapeOfTrie) {
    Leaves deep_chains, shared_suffixes, combs;
    for (int32_t i = 0; i < 6; ++i) {
        std::vector<int32_t> chain(120, 310);
        chain[static_cast<size_t>(20 * i)] = 311 + i;
        deep_chains.push_back(chain);
        shared_suffixes.push_back({300 + i, 400, 401, 402});
        combs.push_back(std::vector<int32_t>(static_cast<size_t>(i + 1), 305));  // each continues the previous one
    }
    for (const Leaves & leaves : {Leaves{{300}}, Leaves{{300, 301, 302}}, deep_chains, shared_suffixes, combs,
                                  Leaves{{300, 301}, {300, 301}, {300, 301}}}) {
        const Choice reference = choose("token-by-token", random_prompt(), leaves);
        for (const std::string & strategy : strategies) {
            random.seed(5);
            const std::vector<int32_t> prompt = random_prompt();
            ASSERT_EQ(choose(strategy, prompt, leaves).tokens, choose("token-by-token", prompt, leaves).tokens)
                << strategy;
        }
        EXPECT_FALSE(reference.tokens.empty());
    }
}

TEST_F(Strategies, HandleThreeThousandLeaves) {
    const Leaves leaves = random_leaves(random, 3000, 6, 12);
    const std::vector<int32_t> prompt = random_prompt();
    const Choice reference = choose("token-by-token", prompt, leaves);
    for (const std::string & strategy : strategies) {
        EXPECT_EQ(choose(strategy, prompt, leaves).tokens, reference.tokens) << strategy;
    }
    const std::vector<double> fast = scores("tree", prompt, leaves);
    const std::vector<double> slow = scores("token-by-token", prompt, leaves);
    for (size_t i = 0; i < leaves.size(); ++i) ASSERT_NEAR(fast[i], slow[i], 1e-4) << i;
}

TEST_F(Strategies, TheRestrictedHeadGivesTheSameLogits) {
    for (int round = 0; round < 60; ++round) {
        const Leaves leaves = random_leaves(random, 20, 6, 4);
        const std::vector<int32_t> prompt = random_prompt();
        std::vector<Choice> choices;
        for (const char * head : {"off", "auto"}) {
            ASSERT_EQ(eliza_inference_set_option(context.get(), "restricted_head", head, nullptr), 0);
            for (const char * strategy : {"skip-ahead", "tree"}) choices.push_back(choose(strategy, prompt, leaves));
        }
        for (size_t i = 0; i < 2; ++i) {
            ASSERT_EQ(choices[i].tokens, choices[i + 2].tokens);
            ASSERT_NEAR(choices[i].logprob, choices[i + 2].logprob, 1e-4);
        }
    }
}

TEST_F(Strategies, TreeModeTakesAtMostOnePassBeyondThePrompt) {
    for (int round = 0; round < 60; ++round) {
        const Leaves leaves = random_leaves(random, 2 + random() % 20, 5, 3);
        const Choice choice = choose("tree", random_prompt(), leaves);
        EXPECT_LE(choice.counts.forward_passes - choice.counts.prompt_passes, 1) << "round " << round;
    }
}

TEST_F(Strategies, TheStatsReportWhichStrategiesRan) {
    // Three decisions: one after the prompt, and two that fit one pass.
    Leaves leaves;
    for (int32_t i = 0; i < 8; ++i) leaves.push_back({300 + i / 4, 310, 320 + i / 2 % 2, 330, 340 + i % 2});
    const std::vector<int32_t> prompt = random_prompt();
    EXPECT_EQ(choose("token-by-token", prompt, leaves).counts.strategies, ELIZA_STRATEGY_TOKEN_BY_TOKEN);
    EXPECT_EQ(choose("skip-ahead", prompt, leaves).counts.strategies, ELIZA_STRATEGY_SKIP_AHEAD);
    EXPECT_TRUE(choose("tree", prompt, leaves).counts.strategies & ELIZA_STRATEGY_TREE);
    EXPECT_FALSE(choose("auto", prompt, leaves).counts.strategies & ELIZA_STRATEGY_TOKEN_BY_TOKEN);
}

TEST_F(Strategies, ALeafDecidedByItsFirstTokenTakesNoPass) {
    const Leaves leaves = {{300, 301, 302, 303}, {310, 311, 312}, {320}};
    for (const char * strategy : {"skip-ahead", "tree", "auto"}) {
        const Choice choice = choose(strategy, random_prompt(), leaves);
        EXPECT_EQ(choice.counts.forward_passes, choice.counts.prompt_passes) << strategy;
        EXPECT_EQ(choice.counts.forward_passes_saved, static_cast<int64_t>(choice.tokens.size()) - 1);
    }
}

TEST_F(Strategies, SamplingDoesNotDependOnTheStrategy) {
    ASSERT_EQ(eliza_inference_set_option(context.get(), "seed", "77", nullptr), 0);
    for (int round = 0; round < 30; ++round) {
        const Leaves leaves = random_leaves(random, 15, 5, 3);
        const std::vector<int32_t> prompt = random_prompt();
        eliza_llm_stream_config_t cfg = full_precision();
        cfg.temperature = 1.5f;
        std::vector<std::vector<int32_t>> outputs;
        for (const std::string & strategy : strategies) {
            ASSERT_EQ(eliza_inference_set_option(context.get(), "strategy", strategy.c_str(), nullptr), 0);
            const StreamHandle stream = open(context, cfg);
            prefill(stream, prompt);
            set_trie(stream, payload(leaves), ELIZA_TRIE_SAMPLE | ELIZA_TRIE_STOP_AT_LEAF);
            outputs.push_back(pull(stream).tokens);
        }
        for (const auto & output : outputs) ASSERT_EQ(output, outputs[0]) << "round " << round;
    }
}

TEST_F(Strategies, ScoresAgreeWithBruteForceAndSumToOne) {
    for (int round = 0; round < 25; ++round) {
        Leaves leaves = random_leaves(random, 1 + random() % 25, 5, 4);
        std::sort(leaves.begin(), leaves.end());
        leaves.erase(std::unique(leaves.begin(), leaves.end()), leaves.end());
        std::shuffle(leaves.begin(), leaves.end(), random);
        const std::vector<int32_t> prompt = random_prompt();
        const std::vector<double> fast = scores("tree", prompt, leaves),
                                  slow = scores("token-by-token", prompt, leaves);
        double total = 0.0;
        for (size_t i = 0; i < leaves.size(); ++i) {
            ASSERT_NEAR(fast[i], slow[i], 1e-4) << "round " << round << ", leaf " << i;
            total += std::exp(fast[i]);
        }
        EXPECT_NEAR(total, 1.0, 1e-6);
        // The leaf chosen by argmax has the probability that its score says.
        const Choice choice = choose("auto", prompt, leaves);
        EXPECT_NEAR(choice.logprob, slow[std::stoul(choice.name)], 1e-4);
    }
}

TEST_F(Strategies, DuplicateLeavesShareTheirScore) {
    const std::vector<double> logprobs = scores("tree", random_prompt(), {{300, 301}, {302}, {300, 301}});
    EXPECT_EQ(logprobs[0], logprobs[2]);
    EXPECT_NEAR(std::exp(logprobs[0]) + std::exp(logprobs[1]), 1.0, 1e-6);
}

TEST_F(Strategies, ModeTwoIsTheLeafWithTheHighestScore) {
    int n_differ = 0;
    for (int round = 0; round < 60; ++round) {
        const Leaves leaves = random_leaves(random, 40, 4, 8);
        const std::vector<int32_t> prompt = random_prompt();
        const std::vector<double> logprobs = scores("token-by-token", prompt, leaves);
        const Choice best = choose("auto", prompt, leaves, ELIZA_TRIE_BEST_LEAF);
        EXPECT_NEAR(best.logprob, *std::max_element(logprobs.begin(), logprobs.end()), 1e-4);
        EXPECT_EQ(best.tokens, leaves[std::stoul(best.name)]);
        n_differ += best.tokens != choose("auto", prompt, leaves).tokens ? 1 : 0;
    }
    EXPECT_GT(n_differ, 0);  // greedy decoding does not always find it
}

TEST_F(Strategies, AChoiceAfterScoresTakesNoPass) {
    const Leaves leaves = random_leaves(random, 20, 5, 3);
    const StreamHandle stream = prompted("auto", random_prompt());
    set_trie(stream, payload(leaves), ELIZA_TRIE_ARGMAX | ELIZA_TRIE_STOP_AT_LEAF);
    EXPECT_EQ(eliza_inference_token_trie_scores(stream.get(), nullptr, 0), 20);
    std::vector<double> logprobs(20);
    ASSERT_EQ(eliza_inference_token_trie_scores(stream.get(), logprobs.data(), 20), 20);
    const int64_t passes = stats(stream).forward_passes;
    pull(stream);
    EXPECT_EQ(stats(stream).forward_passes, passes);
    std::vector<double> again(20);
    EXPECT_EQ(eliza_inference_token_trie_scores(stream.get(), again.data(), 20), 20);  // still available
    EXPECT_EQ(again, logprobs);
}

TEST_F(Strategies, ScoresRequestedTooLateOrWithTooLittleRoomAreErrors) {
    const StreamHandle stream = prompted("auto", random_prompt());
    double logprobs[2];
    EXPECT_EQ(eliza_inference_token_trie_scores(stream.get(), logprobs, 2), ELIZA_ERR_INVALID_ARG);
    set_trie(stream, payload(Leaves{{300, 301}, {300, 302}, {300, 303}}), ELIZA_TRIE_ARGMAX);
    EXPECT_EQ(eliza_inference_token_trie_scores(stream.get(), logprobs, 2), ELIZA_ERR_INVALID_ARG);
    EXPECT_STREQ(eliza_inference_last_error(stream.get()), "cap: expected room for 3 leaves, got 2");
    pull(stream, 1);
    double enough[3];
    EXPECT_EQ(eliza_inference_token_trie_scores(stream.get(), enough, 3), ELIZA_ERR_INVALID_ARG);
}

TEST_F(Strategies, ATreeThatDoesNotFitTheContextFallsBackToOnePath) {
    context = create({{"n_ctx", "256"}, {"n_slots", "1"}}, f32_model_path());
    Leaves leaves;
    for (int32_t i = 0; i < 16; ++i) {  // 16 lanes of 30 tokens are more than 256 cells
        std::vector<int32_t> a(31, 320 + i), b(31, 320 + i);
        b.back() = 400;
        a.insert(a.begin(), 299);
        b.insert(b.begin(), 299);
        leaves.push_back(a);
        leaves.push_back(b);
    }
    leaves.push_back({298});
    const std::vector<int32_t> prompt(100, 50);
    const Choice choice = choose("tree", prompt, leaves);
    EXPECT_EQ(choice.tokens, choose("token-by-token", prompt, leaves).tokens);
}

TEST_F(Strategies, StreamsShareTheLanesWithoutMixing) {
    const Leaves leaves = random_leaves(random, 30, 6, 3);
    const std::vector<int32_t> prompt_a = random_prompt(), prompt_b = random_prompt();
    const Choice alone_a = choose("token-by-token", prompt_a, leaves),
                 alone_b = choose("token-by-token", prompt_b, leaves);
    const StreamHandle a = prompted("tree", prompt_a), b = prompted("tree", prompt_b);
    set_trie(a, payload(leaves), ELIZA_TRIE_STOP_AT_LEAF);
    set_trie(b, payload(leaves), ELIZA_TRIE_STOP_AT_LEAF);
    std::vector<int32_t> of_a, of_b;
    for (int turn = 0; turn < 12; ++turn) {
        for (const int32_t token : pull(a, 1).tokens) of_a.push_back(token);
        for (const int32_t token : pull(b, 1).tokens) of_b.push_back(token);
    }
    EXPECT_EQ(of_a, alone_a.tokens);
    EXPECT_EQ(of_b, alone_b.tokens);
}

TEST_F(Strategies, ContinuingThePromptInsideASpanRepeatsTheDecision) {
    for (const std::string & strategy : strategies) {
        for (int round = 0; round < 10; ++round) {
            const Leaves leaves = random_leaves(random, 12, 4, 5);
            const std::vector<int32_t> prompt = random_prompt(), more = random_prompt();
            std::vector<int32_t> whole = prompt;
            whole.insert(whole.end(), more.begin(), more.end());
            const Choice expected = choose(strategy, whole, leaves);
            if (margin(leaves, scores(strategy, whole, leaves), expected.tokens) < 1e-3) continue;
            const StreamHandle stream = prompted(strategy, prompt);
            set_trie(stream, payload(leaves), ELIZA_TRIE_STOP_AT_LEAF);
            std::vector<double> before(leaves.size());
            eliza_inference_token_trie_scores(stream.get(), before.data(), before.size());
            prefill(stream, more);
            EXPECT_EQ(pull(stream).tokens, expected.tokens) << strategy;
        }
    }
}

TEST_F(Strategies, ATreeLeavesRoomForTheQueuedToken) {
    for (const int n_batch : {100, 101, 102, 103}) {
        const ContextHandle narrow =
            create({{"n_batch", std::to_string(n_batch)}, {"n_slots", "1"}, {"strategy", "tree"}}, f32_model_path());
        Leaves leaves;
        for (int32_t i = 0; i < 20; ++i) leaves.push_back({300, 310 + i, 400, 401, 402, 403});
        leaves.push_back({299});
        const StreamHandle stream = open(narrow, full_precision());
        prefill(stream, {30, 31});
        pull(stream, 1);
        set_trie(stream, payload(leaves), ELIZA_TRIE_STOP_AT_LEAF);
        EXPECT_EQ(pull(stream).status, 1);
    }
}

}  // namespace
}  // namespace eliza::test
