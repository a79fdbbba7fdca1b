// The log-probabilities of a prompt's tokens, computed in a few passes.

#include <cmath>

#include "test_session.h"

namespace eliza::test {
namespace {

class PromptLogprobs : public testing::Test {
protected:
    ContextHandle context = create({{"n_threads", "1"}, {"n_batch", "16"}, {"n_ctx", "512"}}, f32_model_path());
    const std::vector<int32_t> prompt = tokenize(
        context, "The quick brown fox jumps over the lazy dog, and the dog sleeps on. It is a sunny day.", true);
    ErrorText error;

    std::vector<eliza_token_logprob_t> of(const StreamHandle & stream, const std::vector<int32_t> & tokens,
                                          int32_t n_top) {
        std::vector<eliza_token_logprob_t> entries(tokens.size() * (static_cast<size_t>(n_top) + 1));
        EXPECT_EQ(eliza_inference_llm_stream_prefill_logprobs(stream.get(), tokens.data(), tokens.size(), n_top,
                                                              entries.data(), entries.size(), error.out()),
                  0)
            << error.text();
        return entries;
    }

    // The reference: one pass for each token.
    std::vector<eliza_token_logprob_t> one_by_one(const std::vector<int32_t> & tokens, int32_t n_top) {
        const StreamHandle stream = open(context, full_precision_config());
        std::vector<eliza_token_logprob_t> all(static_cast<size_t>(n_top) + 1, {-1, NAN});
        all[0].token = tokens[0];
        prefill(stream, {tokens[0]});
        EXPECT_EQ(eliza_inference_llm_stream_set_logprobs(stream.get(), n_top, nullptr), 0);
        for (size_t i = 1; i < tokens.size(); ++i) {
            EXPECT_EQ(eliza_inference_llm_stream_set_forced_tokens(stream.get(), &tokens[i], 1, nullptr), 0);
            pull(stream, 1);
            std::vector<eliza_token_logprob_t> entries(static_cast<size_t>(n_top) + 1);
            EXPECT_EQ(eliza_inference_llm_stream_take_logprobs(stream.get(), entries.data(), entries.size(), nullptr),
                      1);
            all.insert(all.end(), entries.begin(), entries.end());
        }
        return all;
    }

    static void expect_equal(const std::vector<eliza_token_logprob_t> & got,
                             const std::vector<eliza_token_logprob_t> & expected) {
        ASSERT_EQ(got.size(), expected.size());
        for (size_t i = 0; i < got.size(); ++i) {
            if (std::isnan(expected[i].logprob)) {
                EXPECT_TRUE(std::isnan(got[i].logprob)) << i;
            } else {
                EXPECT_NEAR(got[i].logprob, expected[i].logprob, 1e-4) << i;
            }
            EXPECT_EQ(got[i].token, expected[i].token) << i;
        }
    }
};

TEST_F(PromptLogprobs, AreThoseOfTokensOneByOne) {
    ASSERT_GT(prompt.size(), 17u);
    for (const int32_t n_top : {0, 3}) {
        const StreamHandle stream = open(context, full_precision_config());
        expect_equal(of(stream, prompt, n_top), one_by_one(prompt, n_top));
        EXPECT_LE(stats(stream).forward_passes, static_cast<int64_t>(prompt.size() + 15) / 16);
        EXPECT_EQ(stats(stream).prompt_tokens, static_cast<int64_t>(prompt.size()));
    }
}

TEST_F(PromptLogprobs, AreComputedForCachedTokensToo) {
    {
        const StreamHandle first = open(context, full_precision_config());
        prefill(first, prompt);
    }
    const StreamHandle stream = open(context, full_precision_config());
    expect_equal(of(stream, prompt, 2), one_by_one(prompt, 2));
}

TEST_F(PromptLogprobs, ContinueAConversation) {
    const std::vector<eliza_token_logprob_t> all = one_by_one(prompt, 1);
    for (const size_t n : {size_t{1}, size_t{5}, size_t{16}}) {
        const StreamHandle stream = open(context, full_precision_config());
        const auto middle = prompt.begin() + static_cast<std::ptrdiff_t>(n);
        prefill(stream, {prompt.begin(), middle});
        expect_equal(of(stream, {middle, prompt.end()}, 1),
                     {all.begin() + static_cast<std::ptrdiff_t>(2 * n), all.end()});
        const StreamHandle known = open(context, full_precision_config());
        prefill(known, prompt);
        EXPECT_EQ(pull(stream, 5).tokens, pull(known, 5).tokens);
    }
}

TEST_F(PromptLogprobs, OfAPromptOfEndTokensAreThere) {
    std::vector<int32_t> tokens = prompt;
    tokens.insert(tokens.begin() + 3, llama_vocab_eos(load_model()->vocab()));
    const StreamHandle stream = open(context, full_precision_config());
    const std::vector<eliza_token_logprob_t> entries = of(stream, tokens, 0);
    for (size_t i = 1; i < entries.size(); ++i) EXPECT_TRUE(std::isfinite(entries[i].logprob)) << i;
}

TEST_F(PromptLogprobs, ARejectedCallChangesNothing) {
    const StreamHandle stream = open(context, full_precision_config());
    std::vector<eliza_token_logprob_t> room(prompt.size());
    const auto call = [&](int32_t n_top, size_t cap) {
        return eliza_inference_llm_stream_prefill_logprobs(stream.get(), prompt.data(), prompt.size(), n_top,
                                                           room.data(), cap, error.out());
    };
    EXPECT_EQ(call(0, prompt.size() - 1), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(error.text().rfind("cap: expected room for", 0), 0u) << error.text();
    EXPECT_EQ(call(-1, prompt.size()), ELIZA_ERR_INVALID_ARG);
    EXPECT_EQ(call(1025, prompt.size()), ELIZA_ERR_INVALID_ARG);
    const std::vector<int32_t> long_prompt(600, 5);
    std::vector<eliza_token_logprob_t> more(600);
    EXPECT_EQ(eliza_inference_llm_stream_prefill_logprobs(stream.get(), long_prompt.data(), 600, 0, more.data(), 600,
                                                          error.out()),
              ELIZA_ERR_CONTEXT_FULL);
    EXPECT_EQ(stats(stream).n_past, 0);
    EXPECT_EQ(call(0, prompt.size()), 0) << error.text();
}

}  // namespace
}  // namespace eliza::test
