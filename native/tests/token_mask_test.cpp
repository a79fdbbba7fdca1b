// Masks for the next token: the result is the same as if all other tokens had a bias of -infinity.

#include <algorithm>
#include <random>

#include "error.h"
#include "sampling/legal_tokens.h"
#include "test_session.h"

namespace eliza::test {
namespace {

using Tokens = std::vector<int32_t>;
using Bits = std::vector<uint32_t>;

Bits bits_of(const Tokens & tokens, int32_t n_vocab) {
    Bits bits((static_cast<size_t>(n_vocab) + 31) / 32);
    for (const int32_t token : tokens) bits[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    return bits;
}

class TokenMasks : public testing::Test {
protected:
    ContextHandle context = create({{"n_ctx", "512"}, {"n_threads", "1"}, {"seed", "7"}});
    StreamHandle stream = open(context);
    int32_t n_vocab = stats(stream).n_vocab;
    Tokens prompt = chat_prompt(context, "How are you today?");
    std::mt19937 random{3};

    Tokens draw(size_t n) {
        Tokens all(static_cast<size_t>(n_vocab));
        for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
        std::shuffle(all.begin(), all.end(), random);
        all.resize(n);
        return all;
    }

    int set_mask(const StreamHandle & s, const Bits & bits, const std::string & expected = "") {
        ErrorText error;
        const int status = eliza_inference_llm_stream_set_token_mask(s.get(), bits.data(), bits.size(), error.out());
        if (expected.empty()) {
            EXPECT_EQ(status, ELIZA_OK) << error.text();
        } else {
            EXPECT_NE(error.text().find(expected), std::string::npos) << error.text();
        }
        return status;
    }
    int set_mask(const StreamHandle & s, const Tokens & legal) { return set_mask(s, bits_of(legal, n_vocab)); }

    void set_sampling(const StreamHandle & s, const std::string & json) {
        ErrorText error;
        ASSERT_EQ(eliza_inference_llm_stream_set_sampling(s.get(), json.data(), json.size(), error.out()), ELIZA_OK)
            << error.text();
    }

    // The slow way: a bias against every token that is not allowed.
    void bias_away(const StreamHandle & s, const Tokens & legal) {
        const Bits bits = bits_of(legal, n_vocab);
        std::string json = R"({"logit_bias":[)";
        const char * comma = "";
        for (int32_t token = 0; token < n_vocab; ++token) {
            if ((bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1) == 0) {
                json += comma + ("[" + std::to_string(token) + R"(,"-inf"])");
                comma = ",";
            }
        }
        set_sampling(s, json + "]}");
    }
};

TEST_F(TokenMasks, ActLikeBiasesAgainstAllOtherTokens) {
    const std::vector<std::string> settings = {
        R"({"temperature":0})",
        R"({"temperature":1})",
        R"({"temperature":1,"draw":"gumbel"})",
        R"({"temperature":0.8,"top_k":5})",
        R"({"temperature":0.8,"top_p":0.9,"min_p":0.05,"repeat_penalty":1.2})",
        R"({"temperature":1,"mirostat":2})",
    };
    for (const char * head : {"auto", "off"}) {
        const ContextHandle own =
            create({{"n_ctx", "512"}, {"n_threads", "1"}, {"seed", "7"}, {"restricted_head", head}});
        for (const std::string & setting : settings) {
            for (const size_t n_legal : {size_t(2), size_t(60), size_t(1500)}) {
                const StreamHandle masked = open(own), biased = open(own);
                for (const StreamHandle * s : {&masked, &biased}) {
                    set_sampling(*s, setting);
                    prefill(*s, prompt);
                }
                for (int step = 0; step < 8; ++step) {
                    const Tokens legal = draw(n_legal);
                    set_mask(masked, legal);
                    bias_away(biased, legal);
                    const Output ours = pull(masked, 1), theirs = pull(biased, 1);
                    ASSERT_EQ(ours.tokens, theirs.tokens) << setting << " " << n_legal << " " << head << " " << step;
                    ASSERT_EQ(ours.text, theirs.text);
                    if (ours.status != 0) break;  // both drew an end token
                    ASSERT_EQ(theirs.status, 0);
                }
            }
        }
    }
}

TEST_F(TokenMasks, TheOnlyTokenTakesNoPass) {
    const StreamHandle known = open(context);
    const Tokens forced = tokenize(context, "All is well with");
    prefill(stream, prompt);
    prefill(known, prompt);
    prefill(known, forced);
    const int64_t passes = stats(stream).forward_passes;

    Tokens generated;
    for (const int32_t token : forced) {
        set_mask(stream, Tokens{token});
        const Output step = pull(stream, 1);
        generated.insert(generated.end(), step.tokens.begin(), step.tokens.end());
    }

    EXPECT_EQ(generated, forced);
    EXPECT_EQ(stats(stream).forward_passes, passes);
    EXPECT_EQ(stats(stream).tokens_forced, static_cast<int64_t>(forced.size()));
    // For the first one, the prompt's logits were already known.
    EXPECT_EQ(stats(stream).forward_passes_saved, static_cast<int64_t>(forced.size()) - 1);
    EXPECT_EQ(pull(stream, 5).tokens, pull(known, 5).tokens);
    EXPECT_EQ(stats(stream).forward_passes, passes + 5);
}

TEST_F(TokenMasks, TheOnlyTokenIsNotDrawn) {
    std::vector<Tokens> following;
    for (const char * strategy : {"auto", "token-by-token"}) {
        for (const int n_top : {-1, 0}) {
            const ContextHandle own =
                create({{"n_ctx", "512"}, {"n_threads", "1"}, {"seed", "7"}, {"strategy", strategy}});
            const StreamHandle drawing = open(own);
            set_sampling(drawing, R"({"temperature":1})");
            ASSERT_EQ(eliza_inference_llm_stream_set_logprobs(drawing.get(), n_top, nullptr), 0);
            prefill(drawing, prompt);
            set_mask(drawing, Tokens{300});
            EXPECT_EQ(pull(drawing, 1).tokens, Tokens{300});
            following.push_back(pull(drawing, 4).tokens);
            EXPECT_EQ(following.back(), following.front()) << strategy << " " << n_top;
        }
    }
}

class ForcedTokens : public TokenMasks {
protected:
    int force(const StreamHandle & s, const Tokens & tokens, const std::string & expected_error = "") {
        ErrorText error;
        const int status =
            eliza_inference_llm_stream_set_forced_tokens(s.get(), tokens.data(), tokens.size(), error.out());
        if (expected_error.empty()) {
            EXPECT_EQ(status, ELIZA_OK) << error.text();
        } else {
            EXPECT_NE(error.text().find(expected_error), std::string::npos) << error.text();
        }
        return status;
    }
};

TEST_F(ForcedTokens, OneCallReturnsAllOfThemWithoutAPass) {
    const StreamHandle known = open(context), by_masks = open(context);
    const Tokens forced = tokenize(context, "All is well with");
    prefill(stream, prompt);
    prefill(by_masks, prompt);
    prefill(known, prompt);
    prefill(known, forced);
    const int64_t passes = stats(stream).forward_passes;

    force(stream, forced);
    const Output output = pull(stream, 1);

    EXPECT_EQ(output.tokens, forced);
    EXPECT_EQ(output.text, "All is well with");
    EXPECT_EQ(stats(stream).forward_passes, passes);
    for (const int32_t token : forced) {
        set_mask(by_masks, Tokens{token});
        pull(by_masks, 1);
    }
    EXPECT_EQ(stats(stream).tokens_forced, stats(by_masks).tokens_forced);
    EXPECT_EQ(stats(stream).forward_passes_saved, stats(by_masks).forward_passes_saved);
    EXPECT_EQ(stats(stream).tokens_sampled, 0);
    const Tokens following = pull(known, 5).tokens;
    EXPECT_EQ(pull(stream, 5).tokens, following);
    EXPECT_EQ(pull(by_masks, 5).tokens, following);
}

TEST_F(ForcedTokens, TheReferenceStrategyRunsTheirPasses) {
    const ContextHandle own =
        create({{"n_ctx", "512"}, {"n_threads", "1"}, {"seed", "7"}, {"strategy", "token-by-token"}});
    const StreamHandle slow = open(own);
    const Tokens forced = tokenize(own, "All is well with");
    prefill(slow, prompt);
    const int64_t passes = stats(slow).forward_passes;
    force(slow, forced);
    EXPECT_EQ(pull(slow, forced.size()).tokens, forced);
    EXPECT_EQ(stats(slow).forward_passes, passes + static_cast<int64_t>(forced.size()) - 1);
}

TEST_F(ForcedTokens, MaxTokensAndEndTokensEndTheRun) {
    eliza_llm_stream_config_t cfg = config();
    cfg.max_tokens = 2;
    const StreamHandle limited = open(context, cfg);
    const Tokens forced = tokenize(context, "All is well with");
    prefill(limited, prompt);
    force(limited, forced);
    const Output cut = pull(limited);
    EXPECT_EQ(cut.tokens, Tokens(forced.begin(), forced.begin() + 2));
    EXPECT_EQ(stats(limited).finish_reason, ELIZA_FINISH_LENGTH);

    Tokens ending = {forced[0], tokenize(context, "<|im_end|>", false, true).front(), forced[1]};
    prefill(stream, prompt);
    force(stream, ending);
    const Output ended = pull(stream);
    EXPECT_EQ(ended.status, 1);
    EXPECT_EQ(ended.tokens, Tokens{forced[0]});
    EXPECT_EQ(stats(stream).finish_reason, ELIZA_FINISH_END);
}

// Forced tokens run no pass, so no pass notices that the context is full.
TEST_F(ForcedTokens, EndWithTheContext) {
    for (const char * strategy : {"auto", "token-by-token"}) {
        const ContextHandle small = create({{"n_ctx", "256"}, {"n_threads", "1"}, {"strategy", strategy}});
        const StreamHandle stream = open(small);
        prefill(stream, std::vector<int32_t>(250, 5));
        const std::vector<int32_t> forced(20, 7);
        ErrorText error;
        ASSERT_EQ(eliza_inference_llm_stream_set_forced_tokens(stream.get(), forced.data(), forced.size(), error.out()),
                  0)
            << error.text();
        const Output output = pull(stream);
        EXPECT_EQ(output.status, ELIZA_ERR_CONTEXT_FULL) << strategy;
        EXPECT_EQ(output.tokens, std::vector<int32_t>(7, 7)) << strategy;
        EXPECT_EQ(stats(stream).n_past, 257) << strategy;
    }
}

TEST_F(ForcedTokens, AMaskOrANewConversationRemovesThem) {
    const StreamHandle plain = open(context);
    prefill(plain, prompt);
    const Tokens expected = pull(plain, 4).tokens;
    const Tokens other = {expected[0] == 300 ? 301 : 300};
    const auto start = [&] {
        ASSERT_EQ(eliza_inference_llm_stream_reset(stream.get()), 0);
        prefill(stream, prompt);
        force(stream, other);
    };
    start();
    force(stream, {});
    EXPECT_EQ(pull(stream, 4).tokens, expected);
    start();
    set_mask(stream, Tokens{expected[0]});
    EXPECT_EQ(pull(stream, 4).tokens, expected);
    start();
    ASSERT_EQ(eliza_inference_llm_stream_reset(stream.get()), 0);
    prefill(stream, prompt);
    EXPECT_EQ(pull(stream, 4).tokens, expected);
}

TEST_F(ForcedTokens, InvalidOnesAreRejectedAndChangeNothing) {
    const Tokens forced = tokenize(context, "All is well");
    prefill(stream, prompt);
    force(stream, forced);
    force(stream, {forced[0], n_vocab}, "tokens[1]: " + std::to_string(n_vocab));
    ErrorText error;
    EXPECT_EQ(eliza_inference_llm_stream_set_forced_tokens(stream.get(), forced.data(), uint64_t{1} << 40, error.out()),
              ELIZA_ERR_INVALID_ARG);
    EXPECT_NE(error.text().find("the number of tokens"), std::string::npos) << error.text();
    EXPECT_EQ(pull(stream, 1).tokens, forced);
    set_trie(stream, payload_of(context, action_names), ELIZA_TRIE_ARGMAX);
    force(stream, forced, "a span of choices is active");
}

TEST_F(TokenMasks, AreRemovedWhenTheConversationChanges) {
    const StreamHandle free_of_masks = open(context);
    prefill(stream, prompt);
    prefill(free_of_masks, prompt);
    const Tokens free_tokens = pull(free_of_masks, 4).tokens;
    const Tokens other = {free_tokens[0] == 300 ? 301 : 300};

    const auto restart = [&] {
        ASSERT_EQ(eliza_inference_llm_stream_reset(stream.get()), 0);
        prefill(stream, prompt);
    };
    set_mask(stream, other);
    EXPECT_EQ(pull(stream, 1).tokens, other);

    restart();
    set_mask(stream, other);
    restart();
    EXPECT_EQ(pull(stream, 4).tokens, free_tokens);

    restart();
    set_mask(stream, other);
    EXPECT_EQ(eliza_inference_llm_stream_set_token_mask(stream.get(), nullptr, 0, nullptr), 0);
    EXPECT_EQ(pull(stream, 4).tokens, free_tokens);

    restart();
    set_mask(stream, other);
    set_trie(stream, payload(Leaves{{free_tokens[0]}, {free_tokens[1]}}), ELIZA_TRIE_ARGMAX);
    EXPECT_EQ(pull(stream, 1).tokens, Tokens{free_tokens[0]});

    restart();
    set_mask(stream, other);
    set_mask(stream, Tokens{free_tokens[0]});  // the later one counts
    EXPECT_EQ(pull(stream, 4).tokens, free_tokens);
}

TEST_F(TokenMasks, AChosenEndTokenEndsTheGeneration) {
    const Tokens end = tokenize(context, "<|im_end|>", false, true);
    prefill(stream, prompt);
    set_mask(stream, end);

    const Output output = pull(stream, 1);

    EXPECT_EQ(output.status, 1);
    EXPECT_EQ(output.tokens, Tokens());
    EXPECT_EQ(stats(stream).finish_reason, ELIZA_FINISH_END);
}

TEST_F(TokenMasks, ARejectedCallLeavesTheStreamUnchanged) {
    const StreamHandle same = open(context);
    prefill(same, prompt);
    const Tokens legal = draw(50);
    set_mask(same, legal);
    const Tokens expected = pull(same, 3).tokens;

    prefill(stream, prompt);
    set_mask(stream, legal);
    const size_t n_words = (static_cast<size_t>(n_vocab) + 31) / 32;
    set_mask(stream, Bits(n_words), "expected at least one allowed token, got none");
    const std::string expected_words = "expected " + std::to_string(n_words) + " words of 32 bits";
    set_mask(stream, Bits(n_words - 1, 1), expected_words);
    set_mask(stream, Bits(n_words + 1, 1), expected_words);
    ErrorText error;
    EXPECT_EQ(eliza_inference_llm_stream_set_token_mask(stream.get(), nullptr, n_words, error.out()),
              ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(pull(stream, 3).tokens, expected);
}

TEST(LegalTokens, ATokenBeyondTheVocabularyIsNamed) {
    const Bits all(4, UINT32_MAX);
    try {
        LegalTokens(all.data(), all.size(), 100);
        FAIL() << "no mask was rejected";
    } catch (const Error & error) {
        EXPECT_STREQ(error.what(), "token mask: token 100 is beyond the vocabulary of 100 tokens");
    }
    EXPECT_EQ(LegalTokens(all.data(), all.size(), 128).tokens().size, 128u);
}

TEST_F(TokenMasks, CannotBeCombinedWithSpansOrGrammars) {
    prefill(stream, prompt);
    set_trie(stream, payload_of(context, action_names), ELIZA_TRIE_ARGMAX);
    set_mask(stream, bits_of({5}, n_vocab), "a span of choices is active");
    EXPECT_FALSE(pull(stream, 30).tokens.empty());

    eliza_llm_stream_config_t cfg = config();
    cfg.gbnf_grammar = long_text_grammar;
    const StreamHandle with_grammar = open(context, cfg);
    prefill(with_grammar, prompt);
    set_mask(with_grammar, bits_of({5}, n_vocab), "the stream has a grammar");
}

TEST_F(TokenMasks, ReportLogprobsOfTheWholeRow) {
    StreamHandle free_of_masks = open(context);
    for (const StreamHandle * s : {&stream, &free_of_masks}) {
        ASSERT_EQ(eliza_inference_llm_stream_set_logprobs(s->get(), n_vocab > 1024 ? 1024 : n_vocab, nullptr), 0);
        prefill(*s, prompt);
    }
    pull(free_of_masks, 1);
    std::vector<eliza_token_logprob_t> all(1025), ours(1025);
    ASSERT_EQ(eliza_inference_llm_stream_take_logprobs(free_of_masks.get(), all.data(), all.size(), nullptr), 1);
    for (const int place : {1, 7}) {  // the most probable one, and another
        ASSERT_EQ(eliza_inference_llm_stream_reset(stream.get()), 0);
        prefill(stream, prompt);
        set_mask(stream, Tokens{all[static_cast<size_t>(place)].token});
        pull(stream, 1);
        ASSERT_EQ(eliza_inference_llm_stream_take_logprobs(stream.get(), ours.data(), ours.size(), nullptr), 1);
        EXPECT_EQ(ours[0].token, all[static_cast<size_t>(place)].token);
        EXPECT_NEAR(ours[0].logprob, all[static_cast<size_t>(place)].logprob, 1e-5);
    }
}

TEST_F(TokenMasks, DecodingBeforeTheMaskIsKnownChangesNothing) {
    const StreamHandle ahead = open(context);
    prefill(stream, prompt);
    prefill(ahead, prompt);
    for (int step = 0; step < 6; ++step) {
        const Tokens legal = draw(step % 2 == 0 ? 40 : 1500);
        ASSERT_EQ(eliza_inference_llm_stream_decode(ahead.get(), nullptr), 0);
        const int64_t passes = stats(ahead).forward_passes;
        set_mask(ahead, legal);
        set_mask(stream, legal);
        EXPECT_EQ(pull(ahead, 1).tokens, pull(stream, 1).tokens);
        EXPECT_EQ(stats(ahead).forward_passes, passes);
    }
    EXPECT_EQ(stats(ahead).forward_passes, stats(stream).forward_passes);
    EXPECT_EQ(pull(ahead, 5).tokens, pull(stream, 5).tokens);
}

TEST_F(TokenMasks, ACancelledPassKeepsTheMask) {
    const Tokens legal = draw(50);
    prefill(stream, prompt);
    set_mask(stream, legal);
    const Tokens first = pull(stream, 1).tokens;
    const Tokens again = draw(50);

    set_mask(stream, again);
    eliza_inference_llm_stream_cancel(stream.get());
    EXPECT_EQ(pull(stream, 1).status, ELIZA_ERR_CANCELLED);
    const Tokens second = pull(stream, 1).tokens;

    ASSERT_EQ(second.size(), 1u);
    EXPECT_NE(std::find(again.begin(), again.end(), second[0]), again.end());
}

TEST_F(TokenMasks, DisableDrafts) {
    eliza_llm_stream_config_t cfg = config();
    cfg.draft_min = 1;
    cfg.draft_max = 4;
    const StreamHandle drafting = open(context, cfg);
    prefill(stream, prompt);
    prefill(drafting, prompt);
    for (int step = 0; step < 6; ++step) {
        const Tokens legal = draw(100);
        set_mask(stream, legal);
        set_mask(drafting, legal);
        EXPECT_EQ(pull(drafting, 1).tokens, pull(stream, 1).tokens);
    }
}

}  // namespace
}  // namespace eliza::test
